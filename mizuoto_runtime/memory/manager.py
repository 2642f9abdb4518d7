"""Places the handles that a phase needs and keeps them there until it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .handle import ModelHandle
from .host import Host


class ModelManager:
    """All handles of the process, whole on the host's device while a phase uses them."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._granted_bytes = 0

    @contextmanager
    def load(self, handles: Sequence[ModelHandle], memory_bytes: int) -> Iterator[str]:
        """Place `handles` whole, with room for `memory_bytes` of working memory; yields the device's name.

        On the CPU nothing moves and nothing is counted (P6).
        """
        device = self.host.device()
        for handle in handles:
            handle.enter()
        try:
            self._place(handles, device, memory_bytes)
            yield device
        finally:
            for handle in handles:
                handle.leave()

    def release(self, handles: Sequence[ModelHandle]) -> None:
        """A phase with `handles` is over: bring them back to RAM if the device is shared."""
        if self.host.shares_device:
            for handle in handles:
                handle.unload()

    def _place(self, handles: Sequence[ModelHandle], device: str, memory_bytes: int) -> None:
        if device == "cpu":
            return
        absent_bytes = sum(handle.size_bytes for handle in handles if handle.device != device)
        if absent_bytes or memory_bytes > self._granted_bytes:
            self.host.make_room(absent_bytes + memory_bytes, device)
            self._granted_bytes = memory_bytes
        for handle in handles:
            handle.load(device)
