"""The memory policy in force, from the settings and what the machine has."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from ..settings import Settings

MB = 1 << 20
GB = 1 << 30

VramMode = Literal["high", "normal", "low", "none", "shared"]


@dataclass(frozen=True, kw_only=True)
class VramPolicy:
    """Figures in bytes. limit_bytes: the most that this process may hold on a device, 0 for all of it."""

    mode: VramMode = "normal"
    reserve_bytes: int = 1024 * MB
    limit_bytes: int = 0
    ram_reserve_bytes: int = 2 * GB
    host_copies: Literal["auto", "on", "off"] = "auto"
    max_pinned_bytes: int = 0
    side_streams: int = 0
    oom_retry: bool = True
    oom_fallback: bool = False
    jobs: int = 1
    wait_seconds: float = 600.0


def policy_from(settings: Settings, *, total_ram_bytes: int, device_type: str) -> VramPolicy:
    """The policy that `settings` make on a machine with `total_ram_bytes` of RAM, for devices of `device_type`."""
    ram_reserve_mb = settings.text("compute.ram_reserve_mb")
    pinned_mb = settings.integer("compute.max_pinned_mb")
    streams = settings.integer("compute.async_offload")
    mode = settings.text("compute.vram_mode")
    return VramPolicy(
        mode="normal" if mode == "auto" else mode,  # type: ignore[arg-type]
        reserve_bytes=settings.integer("compute.vram_reserve_mb") * MB,
        limit_bytes=settings.integer("compute.vram_limit_mb") * MB,
        ram_reserve_bytes=int(ram_reserve_mb) * MB if ram_reserve_mb else max(2 * GB, total_ram_bytes // 10),
        host_copies=settings.text("compute.host_copies"),  # type: ignore[arg-type]
        max_pinned_bytes=pinned_mb * MB if pinned_mb else automatic_pin_bytes(total_ram_bytes),
        side_streams=streams if streams >= 0 else (2 if device_type == "cuda" else 0),
        oom_retry=bool(settings.values["compute.oom_retry"]),
        oom_fallback=bool(settings.values["compute.oom_fallback"]),
        jobs=settings.integer("compute.gpu_jobs"),
    )


def automatic_pin_bytes(total_ram_bytes: int, platform: str = sys.platform) -> int:
    """Windows: 40 % of RAM; elsewhere the larger of 40 % and what leaves a tenth or 4 GB of it (S5)."""
    two_fifths = total_ram_bytes * 2 // 5
    if platform == "win32":
        return two_fifths
    return max(two_fifths, min(total_ram_bytes * 9 // 10, total_ram_bytes - 4 * GB))
