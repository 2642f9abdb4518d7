"""The phase that runs on this thread: what a copy deep inside a model's forward reports to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .handle import ModelHandle


@dataclass(eq=False)
class RunningPhase:
    """check: raises to cancel. streamed_bytes: copied so far. peak_bytes: taken of the device at once. partial: why a
    component isn't whole, by its name.

    handles: those that the phase uses; outer: the phase around it in the same request. begun: whether it does, or
    may. beside: all that run on the thread on which it began.
    """

    check: Callable[[], None]
    streamed_bytes: int = 0
    peak_bytes: int = 0
    partial: dict[str, dict[str, object]] = field(default_factory=dict)
    handles: tuple[ModelHandle, ...] = ()
    outer: RunningPhase | None = None
    begun: bool = False
    beside: list[RunningPhase] = field(default_factory=list)

    def all_handles(self) -> set[ModelHandle]:
        """The handles of this phase and of those around it."""
        around = self.outer.all_handles() if self.outer is not None else set()
        return around | set(self.handles)


_thread = threading.local()


def begin(phase: RunningPhase) -> None:
    """Make `phase` the one that runs on this thread. Phases nest, and may end in any order: generators hold some."""
    phase.beside = _phases()
    phase.beside.append(phase)


def end(phase: RunningPhase) -> None:
    """The phase runs no more, if it did; another thread than its own may say so."""
    if phase in phase.beside:
        phase.beside.remove(phase)


def phase() -> RunningPhase | None:
    """The phase that runs on this thread: of those that have not ended, the last that began."""
    phases = _phases()
    return phases[-1] if phases else None


def _phases() -> list[RunningPhase]:
    if not hasattr(_thread, "phases"):
        _thread.phases = []
    found: list[RunningPhase] = _thread.phases
    return found


def check() -> None:
    """Raise if the phase that runs here was cancelled."""
    running_phase = phase()
    if running_phase is not None:
        running_phase.check()


def streamed(size_bytes: int) -> None:
    """Count a copy for the phase that runs here."""
    running_phase = phase()
    if running_phase is not None:
        running_phase.streamed_bytes += size_bytes
