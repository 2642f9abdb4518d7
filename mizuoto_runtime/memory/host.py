"""How a surrounding application shares a device with the runtime: everything that the manager asks of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .device import Device
from .oom import is_out_of_memory

if TYPE_CHECKING:
    from .handle import ModelHandle
    from .pinning import PinHost
    from .policy import VramMode


class Host(Protocol):
    """What the runtime asks of the application around it. Called on the thread that runs the request.

    shares_device: others use the device too and can't ask for it back, so weights leave it when their phase ends.
    serves: it runs on, so models that nobody uses are let go of after a while.
    """

    shares_device: bool
    serves: bool

    def device(self) -> str:
        """Where models run, as torch names it ("cpu", "cuda:0")."""

    def vram_mode(self) -> VramMode | None:
        """What `compute.vram_mode=auto` means here; None: `normal`."""

    def free_bytes(self, device: Device) -> int:
        """What may be allocated on `device` now, what torch's allocator holds unused included."""

    def reserve_bytes(self, device: Device) -> int | None:
        """What must stay free, if the application sees to that; None: `compute.vram_reserve_mb` does."""

    def make_room(self, size_bytes: int, device: str) -> None:
        """Let go of idle memory of the application until `size_bytes` more are free on `device`, as far as it can."""

    def pin_host(self) -> PinHost | None:
        """Where page-locked RAM is counted besides; None: `compute.max_pinned_mb` alone decides."""

    def check_thread(self) -> None:
        """Raise if phases may not run on this thread."""

    def check(self) -> None:
        """Raise if the application wants the request that runs here to end."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` is a failed allocation."""

    def placed(self, handles: Sequence[ModelHandle], device: str) -> None:
        """These handles are on `device` now, or more or less of them than before."""


class StandaloneHost:
    """No application around the runtime: the device is its own, and the driver is asked."""

    shares_device = False
    serves = False

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def device(self) -> str:
        return self._device

    def vram_mode(self) -> VramMode | None:
        return None

    def free_bytes(self, device: Device) -> int:
        return device.free_bytes()

    def reserve_bytes(self, device: Device) -> int | None:
        return None

    def make_room(self, size_bytes: int, device: str) -> None:
        """Nothing else here holds memory."""

    def pin_host(self) -> PinHost | None:
        return None

    def check_thread(self) -> None:
        """Any thread will do."""

    def check(self) -> None:
        """Nobody else can end a request."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        return is_out_of_memory(error)

    def placed(self, handles: Sequence[ModelHandle], device: str) -> None:
        """Nobody else keeps books."""
