"""The phase that runs on this thread: what a copy deep inside a model's forward reports to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class RunningPhase:
    """check: raises to cancel. streamed_bytes: copied so far for this phase."""

    check: Callable[[], None]
    streamed_bytes: int = 0


_thread = threading.local()


@contextmanager
def running(phase: RunningPhase) -> Iterator[None]:
    """Make `phase` the one that runs on this thread; phases nest."""
    outer = getattr(_thread, "phase", None)
    _thread.phase = phase
    try:
        yield
    finally:
        _thread.phase = outer


def check() -> None:
    """Raise if the phase that runs here was cancelled."""
    phase = getattr(_thread, "phase", None)
    if phase is not None:
        phase.check()


def streamed(size_bytes: int) -> None:
    """Count a copy for the phase that runs here."""
    phase = getattr(_thread, "phase", None)
    if phase is not None:
        phase.streamed_bytes += size_bytes
