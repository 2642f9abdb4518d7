"""Waits for what falls due when nobody asks for anything, such as the end of an idle model."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable


class Watch:
    """Calls a method again and again, each time after the seconds that it returned, until it returns None.

    The method's owner is held weakly, and no thread waits while nothing is due. That thread is a daemon's.
    """

    def __init__(self, due: Callable[[], float | None]) -> None:
        self._due = weakref.WeakMethod(due)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._at_s = math.inf

    def within(self, seconds: float) -> None:
        """Call it after so many seconds, if not before."""
        at_s = time.monotonic() + seconds
        with self._lock:
            if at_s >= self._at_s:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._at_s, self._timer = at_s, threading.Timer(seconds, self._call)
            self._timer.name, self._timer.daemon = "mizuoto-idle", True
            self._timer.start()

    def _call(self) -> None:
        with self._lock:
            self._at_s, self._timer = math.inf, None
        due = self._due()
        seconds = None if due is None else due()
        if seconds is not None:
            self.within(seconds)
