"""What a phase function gets to work with: its device, its random numbers, placement, progress, cancel, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..types import ComponentMemory, MemoryReport, Progress
from .handle import ModelHandle
from .manager import ModelManager

if TYPE_CHECKING:
    from torch import Generator

Result = TypeVar("Result")


def _no_progress(progress: Progress) -> None:
    pass


def _never_cancelled() -> None:
    pass


@dataclass(frozen=True)
class Callbacks:
    """How a request speaks to whoever made it.

    progress: told of each step. check: raises to cancel the request; called often, so it must be cheap.
    """

    progress: Callable[[Progress], None] = _no_progress
    check: Callable[[], None] = _never_cancelled


@dataclass
class PhaseContext:
    """One run of one phase.

    rng: a CPU generator seeded with the request's seed; every random number of the phase comes from it.
    """

    phase: str
    manager: ModelManager
    rng: Generator
    callbacks: Callbacks = field(default_factory=Callbacks)
    applied: dict[str, object] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _used: dict[str, ModelHandle] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """Where the phase computes, as torch names it."""
        return self.manager.host.device()

    @contextmanager
    def use(self, handles: Sequence[ModelHandle], memory: int) -> Iterator[None]:
        """Keep `handles` on the device, with `memory` bytes of room beside them, until the block ends (P2)."""
        self.check()
        with self.manager.load(handles, memory):
            self._used.update({handle.name: handle for handle in handles})
            yield

    def run(
        self,
        name: str,
        handles: Sequence[ModelHandle],
        fn: Callable[[], Result],
        memory: int,
        generators: Sequence[Generator] = (),
        fallback: tuple[str, Callable[[], Result]] | None = None,
    ) -> Result:
        """Return `fn()` with `handles` on the device and `memory` bytes of room (P3).

        `name` is the step's name in reports. `generators` are those besides `rng` that `fn` draws from. `fallback` is
        a thriftier way of the engine: (what it is, the function).
        """
        with self.use(handles, memory):
            return fn()

    def check(self) -> None:
        """Raise if the request was cancelled."""
        self.callbacks.check()

    def progress(self, done: int, total: int) -> None:
        """Say that `done` of `total` steps are finished; also a point where a cancel is noticed."""
        self.check()
        self.callbacks.progress(Progress(self.phase, done, total))

    def warn(self, message: str) -> None:
        """Add a message for the user to the output's notes, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def memory_report(self) -> MemoryReport:
        """What the handles used so far hold."""
        components = {
            handle.name: ComponentMemory(size_bytes=handle.size_bytes, loaded_bytes=handle.loaded_bytes_on(self.device))
            for handle in self._used.values()
        }
        return MemoryReport(device=self.device, components=components)
