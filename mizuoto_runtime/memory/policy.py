"""The memory policy in force, from the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from ..settings import Settings

MB = 1 << 20

VramMode = Literal["high", "normal", "low", "none", "shared"]


@dataclass(frozen=True, kw_only=True)
class VramPolicy:
    """Figures in bytes. limit_bytes: the most that this process may hold on a device, 0 for all of it.

    side_streams: how many copies run beside the computation. wait_seconds: how long a request waits for another.
    """

    mode: VramMode = "normal"
    reserve_bytes: int = 1024 * MB
    limit_bytes: int = 0
    keep_host: bool = True
    side_streams: int = 0
    oom_retry: bool = True
    oom_fallback: bool = False
    wait_seconds: float = 600.0


def policy_from(settings: Settings, device_type: str, *, shared: bool) -> VramPolicy:
    """The policy that `settings` make for devices of `device_type`, as torch names it.

    shared: an application around the runtime shares the device; then the reserve is its business, not ours too.
    """
    streams = settings.integer("compute.async_offload")
    mode = settings.text("compute.vram_mode")
    return VramPolicy(
        mode="normal" if mode == "auto" else cast(VramMode, mode),
        reserve_bytes=0 if shared else settings.integer("compute.vram_reserve_mb") * MB,
        limit_bytes=settings.integer("compute.vram_limit_mb") * MB,
        keep_host=settings.text("compute.host_copies") == "on",
        side_streams=streams if streams >= 0 else (2 if device_type == "cuda" else 0),
        oom_retry=bool(settings.values["compute.oom_retry"]),
        oom_fallback=bool(settings.values["compute.oom_fallback"]),
    )
