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

ALL = 1 << 62


class Tenant(Protocol):
    """What the application around may ask of the runtime. Neither calls the application back."""

    def give_way(self, size_bytes: int, device: str) -> int:
        """Let idle weights on `device` go, in the runtime's order, until `size_bytes` are freed; returns the bytes."""

    def let_go(self, handle: ModelHandle, size_bytes: int = ALL) -> int:
        """Let at least so much of this handle go, if it holds that, unless a phase uses it; returns the bytes freed."""


class Host(Protocol):
    """What the runtime asks of the application around it. Called on the thread that runs the request, if nothing else
    is said.

    serves: it runs on, so models that nobody uses are let go of after a while.
    """

    serves: bool

    def connect(self, tenant: Tenant) -> None:
        """The runtime whose handles `claim` will bring."""

    def device(self) -> str:
        """Where models run, as torch names it ("cpu", "cuda:0")."""

    def vram_mode(self) -> VramMode | None:
        """What `compute.vram_mode=auto` means here; None: `normal`."""

    def free_bytes(self, device: Device) -> int:
        """What may be allocated on `device` now, what torch's allocator holds unused included."""

    def reserve_bytes(self, device: Device, memory_bytes: int) -> int | None:
        """What must stay free beside `memory_bytes` of working memory, if the application says so.

        None: `compute.vram_reserve_mb` does.
        """

    def held_bytes(self, device: Device) -> int:
        """What the application's own models hold on `device`. For reports; called by any thread."""

    def claim(self, handles: Sequence[ModelHandle], memory_bytes: int, short_bytes: int, device: Device) -> bool:
        """`handles` are to be on `device`, with `memory_bytes` of room beside them: enter them into the books.

        short_bytes: what is missing, 0 or less if nothing is; let go of idle memory for that, as far as possible.
        Returns whether more or less may be free now.
        """

    def free_all(self, device: Device) -> int:
        """Memory ran out: let go of all idle memory of the application on `device`; returns the bytes freed."""

    def ended(self, handles: Sequence[ModelHandle], device: Device) -> None:
        """A phase with these handles is over."""

    def pin_host(self) -> PinHost | None:
        """Where page-locked RAM is counted besides; None: `compute.max_pinned_mb` alone decides."""

    def check_thread(self) -> None:
        """Raise if phases may not run on this thread."""

    def check(self) -> None:
        """Raise if the application wants the request that runs here to end."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` is a failed allocation."""

    def rests(self) -> bool:
        """Whether it runs nothing now, so that what is idle may be let go of. Called by any thread."""

    def let_go(self) -> None:
        """Idle models were let go of, because nobody used them for long. Called by any thread."""


class StandaloneHost:
    """No application around the runtime: the device is its own, and the driver is asked."""

    serves = False

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def connect(self, tenant: Tenant) -> None:
        """Nobody else asks for memory."""

    def device(self) -> str:
        return self._device

    def vram_mode(self) -> VramMode | None:
        return None

    def free_bytes(self, device: Device) -> int:
        return device.free_bytes()

    def reserve_bytes(self, device: Device, memory_bytes: int) -> int | None:
        return None

    def held_bytes(self, device: Device) -> int:
        return 0

    def claim(self, handles: Sequence[ModelHandle], memory_bytes: int, short_bytes: int, device: Device) -> bool:
        return False

    def free_all(self, device: Device) -> int:
        return 0

    def ended(self, handles: Sequence[ModelHandle], device: Device) -> None:
        """Handles stay where they are."""

    def pin_host(self) -> PinHost | None:
        return None

    def check_thread(self) -> None:
        """Any thread will do."""

    def check(self) -> None:
        """Nobody else can end a request."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        return is_out_of_memory(error)

    def rests(self) -> bool:
        return True

    def let_go(self) -> None:
        """Nobody else counts what is held."""
