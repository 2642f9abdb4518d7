"""How RAM is locked for a device: the one place that calls CUDA's host registration and torch's locked allocator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Mode = Literal["in place", "copied", "off"]
FOR_EVERY_CONTEXT = 1


class LockingFailed(RuntimeError):
    """RAM couldn't be locked or unlocked. Never an error of a request: the copy stays pageable."""


class Locks(Protocol):
    """mode: whether blocks are locked where they lie, or copied into locked ones. reason: why not at all.

    Each method but `trim` raises LockingFailed.
    """

    mode: Mode
    reason: str

    def register(self, address: int, size_bytes: int) -> None:
        """Lock whole pages from `address` on, where they lie."""

    def unregister(self, address: int) -> None:
        """Unlock what was registered from `address` on."""

    def wait(self) -> None:
        """Return when no copy is under way."""

    def allocate(self, size_bytes: int) -> Tensor:
        """A locked block of uint8."""

    def trim(self) -> None:
        """Give locked memory that is kept for later blocks back to the system."""


class NoLocks:
    """Nothing is locked."""

    mode: Mode = "off"

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def register(self, address: int, size_bytes: int) -> None:
        raise LockingFailed(self.reason)

    def unregister(self, address: int) -> None:
        raise LockingFailed(self.reason)

    def wait(self) -> None:
        """Copies are done when they return."""

    def allocate(self, size_bytes: int) -> Tensor:
        raise LockingFailed(self.reason)

    def trim(self) -> None:
        """Nothing is kept."""


class TorchLocks:
    """Locked blocks of torch's own allocator, for ROCm and for small blocks."""

    mode: Mode = "copied"
    reason = ""

    def register(self, address: int, size_bytes: int) -> None:
        raise LockingFailed("this device locks nothing in place")

    def unregister(self, address: int) -> None:
        raise LockingFailed("this device locks nothing in place")

    def wait(self) -> None:
        """Wait for every device that the process uses; asking about the others would start them."""
        import torch

        try:
            for index in range(torch.cuda.device_count()):
                if torch.cuda.memory_reserved(index):
                    torch.cuda.synchronize(index)
        except RuntimeError as error:
            raise LockingFailed(f"the device failed while copies were waited for: {error}") from error

    def allocate(self, size_bytes: int) -> Tensor:
        import torch

        try:
            with torch.inference_mode(False):
                return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as error:
            raise LockingFailed(f"torch couldn't allocate {size_bytes:,} bytes of locked RAM: {error}") from error

    def trim(self) -> None:
        import torch

        with suppress(LockingFailed):
            self.wait()
        torch._C._host_emptyCache()


class CudaLocks(TorchLocks):
    """Registers memory of the host with NVIDIA's driver. device: as torch names it, the one whose context is used."""

    mode: Mode = "in place"

    def __init__(self, device: str) -> None:
        self._device = device

    def register(self, address: int, size_bytes: int) -> None:
        import torch

        with torch.cuda.device(self._device):
            runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            code = runtime.cudaHostRegister(address, size_bytes, FOR_EVERY_CONTEXT)
            self._check(code, f"locking {size_bytes:,} bytes of RAM for {self._device}")

    def unregister(self, address: int) -> None:
        import torch

        with torch.cuda.device(self._device):
            code = torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]
            self._check(code, f"unlocking RAM for {self._device}")

    def _check(self, code: int, what: str) -> None:
        """A failed call also leaves its error for this thread's next kernel launch to raise; a small one takes it."""
        import torch

        if int(code) == 0:
            return
        with suppress(RuntimeError):
            torch.ones(1, device=self._device)
        raise LockingFailed(f"{what} failed with CUDA error {int(code)}")


class SimulatedLocks:
    """Locks nothing, and keeps CUDA's rules: pages are registered once, and unregistered as they were registered.

    before: called with the size of what is to be locked; tests raise LockingFailed from it. waits: calls of `wait`.
    """

    reason = ""

    def __init__(self, mode: Mode = "in place") -> None:
        self.mode = mode
        self.before: Callable[[int], None] | None = None
        self.registered: dict[int, int] = {}
        self.waits = 0
        self.trims = 0
        self._lock = threading.Lock()

    def register(self, address: int, size_bytes: int) -> None:
        if self.before is not None:
            self.before(size_bytes)
        with self._lock:
            for start, held_bytes in tuple(self.registered.items()):
                if address < start + held_bytes and start < address + size_bytes:
                    raise LockingFailed(f"{held_bytes:,} bytes at {start:#x} are registered already")
            self.registered[address] = size_bytes

    def unregister(self, address: int) -> None:
        if self.registered.pop(address, None) is None:
            raise LockingFailed(f"nothing is registered at {address:#x}")

    def wait(self) -> None:
        self.waits += 1

    def allocate(self, size_bytes: int) -> Tensor:
        import torch

        if self.before is not None:
            self.before(size_bytes)
        return torch.empty(size_bytes, dtype=torch.uint8)

    def trim(self) -> None:
        self.trims += 1


def locks_for(device: str) -> Locks:
    """What can be locked for `device`, as torch names it."""
    kind = device.partition(":")[0]
    if kind != "cuda":
        return NoLocks(f"{kind} copies synchronously")
    import torch

    return TorchLocks() if torch.version.hip else CudaLocks(device)
