"""The memory policy in force, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast

from ..settings import Settings
from ..types import ModelRef

MB = 1 << 20

VramMode = Literal["high", "normal", "low", "none", "shared"]
HostCopies = Literal["auto", "on", "off"]
KvCache = Literal["dynamic", "static"]

ALLOCATOR_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
ALLOCATOR_VARIABLES = (ALLOCATOR_VARIABLE, "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
ALLOCATORS = {"async": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"}


@dataclass(frozen=True, kw_only=True)
class VramPolicy:
    """Figures in bytes. reserve_bytes: left to others on a device, None for a share of it. limit_bytes: the most that
    this process may hold on a device, 0 for all of it.

    ram_reserve_bytes, max_pinned_bytes: None for automatic. side_streams: how many copies run beside the computation.
    pinned_models: those that give way last. gpu_jobs: requests at once on a device. wait_seconds: how long a request
    waits for another.
    """

    mode: VramMode = "normal"
    reserve_bytes: int | None = None
    limit_bytes: int = 0
    ram_reserve_bytes: int | None = None
    host_copies: HostCopies = "auto"
    max_pinned_bytes: int | None = None
    side_streams: int = 0
    oom_retry: bool = True
    oom_fallback: bool = False
    kv_cache: KvCache = "dynamic"
    cuda_graphs: bool = True
    pinned_models: frozenset[ModelRef] = frozenset()
    gpu_jobs: int = 1
    wait_seconds: float = 600.0


def policy_from(
    settings: Settings,
    device_type: str,
    auto_mode: VramMode = "normal",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> VramPolicy:
    """The policy that `settings` make for devices of `device_type`, as torch names it.

    auto_mode: what `compute.vram_mode=auto` means. environment: where torch's allocator may have been chosen.
    """
    streams = settings.integer("compute.async_offload")
    mode = settings.text("compute.vram_mode")
    reserve, ram_reserve = settings.values["compute.vram_reserve_mb"], settings.values["compute.ram_reserve_mb"]
    return VramPolicy(
        mode=auto_mode if mode == "auto" else cast(VramMode, mode),
        reserve_bytes=None if reserve is None else settings.integer("compute.vram_reserve_mb") * MB,
        limit_bytes=settings.integer("compute.vram_limit_mb") * MB,
        ram_reserve_bytes=None if ram_reserve is None else settings.integer("compute.ram_reserve_mb") * MB,
        host_copies=cast(HostCopies, settings.text("compute.host_copies")),
        max_pinned_bytes=settings.integer("compute.max_pinned_mb") * MB or None,
        side_streams=streams if streams >= 0 else (2 if device_type == "cuda" else 0),
        oom_retry=settings.flag("compute.oom_retry"),
        oom_fallback=settings.flag("compute.oom_fallback"),
        kv_cache=cast(KvCache, settings.text("compute.kv_cache")),
        cuda_graphs=settings.flag("compute.cuda_graphs") and not _allocates_async(settings, environment),
        pinned_models=_pinned(settings),
        gpu_jobs=settings.integer("compute.gpu_jobs"),
    )


def allocator_conf(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """What a host should set PYTORCH_CUDA_ALLOC_CONF to before torch first uses CUDA (K2).

    None: leave it, as torch's own allocator is wanted, or a value already set wins.
    """
    if _allocator_set(environment):
        return None
    return ALLOCATORS.get(settings.text("compute.cuda_allocator"))


def _allocator_set(environment: Mapping[str, str]) -> list[str]:
    return [environment[name] for name in ALLOCATOR_VARIABLES if environment.get(name)]


def _allocates_async(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether torch allocates as CUDA graphs can't be captured with; what is set already wins."""
    confs = _allocator_set(environment) or [ALLOCATORS.get(settings.text("compute.cuda_allocator"), "")]
    return any(ALLOCATORS["async"] in conf for conf in confs)


def _pinned(settings: Settings) -> frozenset[ModelRef]:
    names = [name.split(".") for name in settings.values if name.endswith(".pinned_models")]
    return frozenset(
        ModelRef(engine, model) for _, engine, key in names for model in settings.names(f"engines.{engine}.{key}")
    )
