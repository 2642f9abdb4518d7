"""What ComfyUI's memory management asks of a model, answered for one handle. Imports nothing of ComfyUI.

ComfyUI keeps weak references only. So the handle owns its adapter, the adapter alone owns its anchor, and the adapter
knows the handle weakly: a handle that is dropped takes its entry along. No answer here calls ComfyUI back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..mizuoto_runtime.memory.host import ALL

if TYPE_CHECKING:
    from ..mizuoto_runtime.memory.handle import ModelHandle
    from ..mizuoto_runtime.memory.host import Tenant

OFFLOAD_DEVICE = torch.device("cpu")


class MizuotoWeights(nn.Module):
    """An adapter's `.model`: empty, since the weights are the handle's. ComfyUI logs its name and writes attributes."""


class Core:
    """Stands before ComfyUI's ModelPatcher among an adapter's bases; members that it doesn't know get ModelPatcher's.

    handle: the one that it speaks for. tenant: the manager, whose order decides which of its handles give way.
    """

    def __init__(self, handle: ModelHandle, load_device: torch.device, tenant: Tenant) -> None:
        self._handle = weakref.ref(handle)
        self._tenant = tenant
        self._size_bytes = handle.size_bytes
        super().__init__(MizuotoWeights(), load_device, OFFLOAD_DEVICE, self._size_bytes)  # type: ignore[call-arg]

    def __del__(self) -> None:
        """ModelPatcher's own would move weights."""

    def speaks_for(self, handle: ModelHandle, load_device: torch.device) -> bool:
        """Whether the adapter can be used again for the handle as it is now."""
        return self.load_device == load_device and self._size_bytes == handle.size_bytes  # type: ignore[attr-defined]

    def model_size(self) -> int:
        return self._size_bytes

    def loaded_size(self) -> int:
        handle = self._handle()
        return 0 if handle is None else handle.held_bytes

    def current_loaded_device(self) -> torch.device:
        device: torch.device = self.load_device  # type: ignore[attr-defined]
        return device

    def is_clone(self, other: object) -> bool:
        return other is self

    def is_dynamic(self) -> bool:
        return False

    def model_dtype(self) -> torch.dtype | None:
        return None

    def model_patches_to(self, device: object) -> None:
        """There are no patches."""

    def model_patches_models(self) -> list[Any]:
        return []

    def lowvram_patch_counter(self) -> int:
        return 0

    def partially_load(
        self, device_to: torch.device, extra_memory: float = 0, force_patch_weights: bool = False
    ) -> int:
        """Shrink if `extra_memory` is negative; the bytes that came to the device.

        A phase that wants more weights there places them itself, once ComfyUI has made room.
        """
        handle = self._handle()
        if extra_memory >= 0 or handle is None:
            return 0
        try:
            return -self._tenant.let_go(handle, ceil_bytes(-extra_memory))
        except BaseException:  # ComfyUI has taken the entry off its list, so nothing may stay
            self.detach()
            raise

    def partially_unload(
        self, device_to: torch.device, memory_to_free: float = 0, force_patch_weights: bool = False
    ) -> int:
        """Free that many bytes, rounded up to whole units, of whichever idle handle is next to give way."""
        return self._tenant.give_way(ceil_bytes(memory_to_free), str(self.load_device))  # type: ignore[attr-defined]

    def detach(self, unpatch_all: bool = True) -> MizuotoWeights:
        """Leave the device, unless a phase uses the weights. `unpatch_all=False` comes before a load: they stay."""
        handle = self._handle()
        if unpatch_all and handle is not None:
            self._tenant.let_go(handle)
        anchor: MizuotoWeights = self.model  # type: ignore[attr-defined]
        return anchor

    def partially_unload_ram(self, ram_to_unload: float, subsets: Iterable[str] = ()) -> int:
        """RAM is short: keep a whole, idle handle's weights on the device alone; the bytes of RAM given up."""
        handle = self._handle()
        return 0 if handle is None or handle.busy else handle.drop_host_copies()

    def model_mmap_residency(self, free: bool = False) -> tuple[int, int]:
        return 0, 0

    def pinned_memory_size(self) -> int:
        return 0

    def loaded_ram_size(self) -> int:
        return 0


class ObservedTenant:
    """A tenant whose owner is told when something gave way."""

    def __init__(self, tenant: Tenant, gave_way: Callable[[], None]) -> None:
        self._tenant = tenant
        self._gave_way = gave_way

    def give_way(self, size_bytes: int, device: str) -> int:
        return self._noted(self._tenant.give_way(size_bytes, device))

    def let_go(self, handle: ModelHandle, size_bytes: int = ALL) -> int:
        return self._noted(self._tenant.let_go(handle, size_bytes))

    def _noted(self, freed_bytes: int) -> int:
        if freed_bytes:
            self._gave_way()
        return freed_bytes


def ceil_bytes(size_bytes: float) -> int:
    """Whole bytes; ComfyUI's figures may be fractions, or 1e32 for "all"."""
    return -int(-size_bytes // 1)


def load_device(name: str, own: torch.device) -> torch.device:
    """The device called `name` as ComfyUI's entries must have it; own: the one that ComfyUI uses.

    ValueError for a name without the index that ComfyUI's own has: an entry with it would never give way.
    """
    device = torch.device(name)
    if device.type != own.type:
        return device
    if device.index is None and own.index is not None:
        raise ValueError(f"device {name!r} has no index; ComfyUI would never ask it for memory. Use {str(own)!r}")
    return own if (device.index or 0) == (own.index or 0) else device


def reserve_beside(memory_bytes: int, least_bytes: float, reserved_bytes: float) -> int:
    """What stays free beside `memory_bytes` of working memory, as beside a model of ComfyUI's own.

    It leaves the larger of `least_bytes`, its reserve included, and the working memory with `reserved_bytes`.
    """
    return ceil_bytes(max(least_bytes - memory_bytes, reserved_bytes))
