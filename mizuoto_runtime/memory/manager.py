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

    def _place(self, handles: Sequence[ModelHandle], device: str, memory_bytes: int) -> None:
        if device == "cpu":
            return
        absent_bytes = sum(handle.size_bytes for handle in handles if handle.device != device)
        self.host.make_room(absent_bytes + memory_bytes, device)
        for handle in handles:
            handle.load(device)
