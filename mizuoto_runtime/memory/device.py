"""Devices: where weights are computed with, how much is free there, and blocks of memory on them.

A block is one flat allocation. A simulated device is the CPU playing a device of a given size: its blocks are charged
against that size, and an allocation beyond it fails as a real one would.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InputError, NotEnoughMemory
from .oom import is_out_of_memory

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class Device(Protocol):
    """One place for weights. All figures are in bytes."""

    name: str
    plain: bool
    """A CPU without simulation: nothing is moved or counted there."""
    strict: bool
    """Weights that aren't on the device can't be read."""

    @property
    def torch_device(self) -> torch.device: ...

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int: ...

    def held_bytes(self) -> int:
        """What this process holds there, as far as the device knows."""

    def cached_bytes(self) -> int:
        """What `empty_cache` would give back."""

    def allocate(self, size_bytes: int) -> Tensor:
        """A block: uint8, one-dimensional. NotEnoughMemory if it can't be had; given back when it is let go of."""

    def empty_cache(self) -> None: ...


class PlainCpu:
    """The CPU as it is."""

    name = "cpu"
    plain = True
    strict = False

    @property
    def torch_device(self) -> torch.device:
        return _torch_device("cpu")

    def free_bytes(self) -> int:
        return 1 << 62

    def total_bytes(self) -> int:
        return 1 << 62

    def held_bytes(self) -> int:
        return 0

    def cached_bytes(self) -> int:
        return 0

    def allocate(self, size_bytes: int) -> Tensor:
        return _empty(size_bytes, self.torch_device)

    def empty_cache(self) -> None:
        """The CPU has no cache of its own."""


class SimulatedDevice:
    """The CPU playing a device of `size_bytes`.

    before_allocation: called with the size of each block before it is made; tests raise from it.
    """

    plain = False

    def __init__(self, name: str, size_bytes: int, *, strict: bool) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.strict = strict
        self.before_allocation: Callable[[int], None] | None = None
        self.peak_bytes = 0
        self._charged_bytes = 0
        self._lock = threading.Lock()

    @property
    def torch_device(self) -> torch.device:
        return _torch_device("cpu")

    def free_bytes(self) -> int:
        return self.size_bytes - self._charged_bytes

    def total_bytes(self) -> int:
        return self.size_bytes

    def held_bytes(self) -> int:
        return self._charged_bytes

    def cached_bytes(self) -> int:
        return 0

    def allocate(self, size_bytes: int) -> Tensor:
        if self.before_allocation is not None:
            self.before_allocation(size_bytes)
        with self._lock:
            free = self.size_bytes - self._charged_bytes
            if size_bytes > free:
                raise NotEnoughMemory(
                    f"{self.name}: {size_bytes:,} bytes are needed, {free:,} of {self.size_bytes:,} are free"
                )
            self._charged_bytes += size_bytes
            self.peak_bytes = max(self.peak_bytes, self._charged_bytes)
        try:
            block = _empty(size_bytes, self.torch_device)
        except BaseException:
            self._give_back(size_bytes)
            raise
        weakref.finalize(block.untyped_storage(), self._give_back, size_bytes).atexit = False
        return block

    def empty_cache(self) -> None:
        """Blocks are given back at once."""

    def _give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._charged_bytes -= size_bytes


class Accelerator:
    """A CUDA, ROCm, XPU or MPS device through torch's own interfaces."""

    plain = False
    strict = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._device = _torch_device(name)

    @property
    def torch_device(self) -> torch.device:
        return self._device

    def free_bytes(self) -> int:
        """What the driver reports, and what torch's caching allocator holds unused (B2)."""
        import torch

        if self._device.type == "mps":
            return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        free, _ = _module(self._device).mem_get_info(self._device)
        return int(free) + self.cached_bytes()

    def total_bytes(self) -> int:
        import torch

        if self._device.type == "mps":
            return torch.mps.recommended_max_memory()
        return int(_module(self._device).mem_get_info(self._device)[1])

    def held_bytes(self) -> int:
        import torch

        if self._device.type == "mps":
            return torch.mps.current_allocated_memory()
        return int(_module(self._device).memory_allocated(self._device))

    def cached_bytes(self) -> int:
        import torch

        if self._device.type == "mps":
            return torch.mps.driver_allocated_memory() - torch.mps.current_allocated_memory()
        module = _module(self._device)
        return int(module.memory_reserved(self._device) - module.memory_allocated(self._device))

    def allocate(self, size_bytes: int) -> Tensor:
        try:
            return _empty(size_bytes, self._device)
        except BaseException as error:
            if not is_out_of_memory(error):
                raise
            free = self.free_bytes()
            raise NotEnoughMemory(f"{self.name}: {size_bytes:,} bytes are needed, {free:,} are free") from error

    def empty_cache(self) -> None:
        import torch

        if self._device.type == "mps":
            torch.mps.empty_cache()
        else:
            _module(self._device).empty_cache()


class DeviceService:
    """The devices of this process by name. `simulate`: device names that the CPU plays, with their sizes in bytes."""

    def __init__(self, simulate: Mapping[str, int] | None = None, *, strict: bool = False) -> None:
        self._devices: dict[str, Device] = {
            name: SimulatedDevice(name, size_bytes, strict=strict) for name, size_bytes in (simulate or {}).items()
        }
        self._lock = threading.Lock()
        self._on_cpu: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def pin_to_cpu(self, module: nn.Module) -> None:
        """Never move `module` and what is under it: it computes on the CPU (U3). Before its handle is first placed."""
        self._on_cpu.update(module.modules())

    def stays_on_cpu(self, module: nn.Module) -> bool:
        """Whether `module` was pinned to the CPU."""
        return module in self._on_cpu

    def get(self, name: str) -> Device:
        """The device called `name`, as torch names it."""
        with self._lock:
            if name not in self._devices:
                self._devices[name] = PlainCpu() if name == "cpu" else Accelerator(name)
            return self._devices[name]


def checked_device(name: str) -> str:
    """The device as torch names it, with its index ("cuda" → "cuda:0"); "" is the CPU. InputError if it isn't there."""
    if name in ("", "cpu"):
        return "cpu"
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} isn't one that torch knows; known here: {', '.join(present())}") from error
    indexed = f"{device.type}:{device.index or 0}"
    if indexed not in present():
        raise InputError(f"device {name!r} isn't on this machine; present: {', '.join(present())}")
    return indexed


def present() -> tuple[str, ...]:
    """The names of all devices that torch can use here."""
    import torch

    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    found += [f"xpu:{index}" for index in range(torch.xpu.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps:0")
    return ("cpu", *found)


def _torch_device(name: str) -> torch.device:
    import torch

    return torch.device(name)


def _empty(size_bytes: int, device: torch.device) -> Tensor:
    """Never an inference tensor: those may not be written to later, and take other kernels on the CPU."""
    import torch

    with torch.inference_mode(False):
        return torch.empty(size_bytes, dtype=torch.uint8, device=device)


def _module(device: torch.device) -> Any:
    import torch

    return torch.xpu if device.type == "xpu" else torch.cuda
