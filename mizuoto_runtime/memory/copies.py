"""How bytes get from RAM to a device: at once, or beside the computation on CUDA's side streams.

The one place that knows streams and events.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import Tensor

from .device import Device


class Copies(Protocol):
    """ahead: whether copies can run beside the computation, so that copying ahead pays."""

    ahead: bool

    def now(self, target: Tensor, source: Tensor) -> None:
        """Copy; what is computed next sees the copy."""

    def later(self, target: Tensor, source: Tensor, slot: object) -> Any:
        """Start a copy into the memory of `slot`, once what computes with the slot's last copy is done; a ticket."""

    def wait(self, ticket: Any) -> None:
        """What is computed next sees the copy of that ticket."""

    def used(self, slot: object) -> None:
        """What was computed so far may read the memory of `slot`."""


class CopiesAtOnce:
    """Every copy is done when the call returns, or queued in the order of the computation."""

    ahead = False

    def now(self, target: Tensor, source: Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def later(self, target: Tensor, source: Tensor, slot: object) -> Any:
        self.now(target, source)

    def wait(self, ticket: Any) -> None:
        """Nothing is under way."""

    def used(self, slot: object) -> None:
        """The next copy queues behind."""


class CopiesAhead:
    """Copies on `streams` side streams of a CUDA or ROCm device, in turn."""

    ahead = True

    def __init__(self, device: torch.device, streams: int) -> None:
        self._device = device
        self._streams = [torch.cuda.Stream(device) for _ in range(streams)]  # type: ignore[no-untyped-call]
        self._turn = 0
        self._last_use: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def now(self, target: Tensor, source: Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def later(self, target: Tensor, source: Tensor, slot: object) -> Any:
        stream = self._streams[self._turn]
        self._turn = (self._turn + 1) % len(self._streams)
        used = self._last_use.get(slot)
        with torch.cuda.stream(stream):
            if used is not None:
                stream.wait_event(used)
            target.copy_(source, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(stream)
        target.record_stream(stream)
        return done

    def wait(self, ticket: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(ticket)

    def used(self, slot: object) -> None:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._last_use[slot] = event


def copies_for(device: Device, side_streams: int) -> Copies:
    """How slots of `device` are filled, with that many copies beside the computation."""
    ahead = side_streams > 0 and device.torch_device.type == "cuda"
    return CopiesAhead(device.torch_device, side_streams) if ahead else CopiesAtOnce()
