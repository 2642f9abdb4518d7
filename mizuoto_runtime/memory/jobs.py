"""How many requests run on a device at once (`compute.gpu_jobs`)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 0.05


class JobSlots:
    """Counts the requests on each device; one too many waits."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def job(self, device: str, most: int, check: Callable[[], None]) -> Iterator[None]:
        """Run as one of at most `most` requests on `device`. check: raises to cancel the wait."""
        with self._changed:
            while self._running[device] >= most:
                check()
                self._changed.wait(POLL_SECONDS)
            self._running[device] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running[device] -= 1
                self._changed.notify_all()
