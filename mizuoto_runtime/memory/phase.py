"""What a phase function gets to work with: its device, its random numbers, placement, progress, cancel, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..errors import NotEnoughMemory
from ..types import ComponentMemory, MemoryReport, Progress
from . import current
from .current import RunningPhase
from .handle import ModelHandle
from .manager import ModelManager
from .policy import KvCache
from .working import PhaseId

if TYPE_CHECKING:
    from torch import Generator

Result = TypeVar("Result")
MAX_RETRIES = 2


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

    phase: its name for people; id: for the runtime. rng: a CPU generator seeded with the request's seed; every random
    number of the phase comes from it.
    """

    phase: str
    manager: ModelManager
    rng: Generator
    callbacks: Callbacks = field(default_factory=Callbacks)
    id: PhaseId = field(default_factory=PhaseId)
    applied: dict[str, object] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _open: list[tuple[ExitStack, RunningPhase]] = field(default_factory=list)
    _components: dict[str, ComponentMemory] = field(default_factory=dict)
    _streamed_bytes: int = 0
    _partial: dict[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """Where the phase computes, as torch names it."""
        return self.manager.host.device()

    @property
    def kv_cache(self) -> KvCache:
        """How language models keep attention's keys and values (K1)."""
        return self.manager.policy.kv_cache

    @property
    def cuda_graphs(self) -> bool:
        """Whether steps may be captured in CUDA graphs: on an NVIDIA or AMD card, if `compute.cuda_graphs` is on."""
        return self.manager.policy.cuda_graphs and self.device.startswith("cuda")

    @contextmanager
    def use(self, handles: Sequence[ModelHandle], memory: int, *, step: str = "use") -> Iterator[None]:
        """Keep `handles` on the device, with `memory` bytes of room beside them, until the block ends (P2).

        A block that is never left, as in a generator that nobody asks again, ends with the phase. `step` tells the
        phase's blocks apart when their working memory is measured.
        """
        self.check()
        running = RunningPhase(self.check, handles=tuple(handles), outer=current.phase())
        loaded = ExitStack()
        self._open.append((loaded, running))
        working, device = self.manager.working, self.manager.device
        key = working.key(self.id, step, handles, device, memory)
        try:
            loaded.enter_context(self.manager.load(handles, working.needed_bytes(key, memory), running))
            with working.measured(key, device, memory):
                yield
            self._note(handles)
        finally:
            self._end(loaded, running)

    def close(self) -> None:
        """The phase is over: end the blocks of `use` that were never left."""
        for loaded, running in reversed(self._open):
            self._note(running.handles)
            self._end(loaded, running)

    def _end(self, loaded: ExitStack, running: RunningPhase) -> None:
        loaded.close()
        self._open = [block for block in self._open if block[1] is not running]
        self._take_over(running)
        running.handles = ()

    def _take_over(self, running: RunningPhase) -> None:
        self._streamed_bytes += running.streamed_bytes
        running.streamed_bytes = 0
        self._partial.update(running.partial)

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

        `name` is the step's name in reports. If memory runs out, other handles leave, these may hold half, the
        generators, `rng` among them, are set back, and `fn` runs again: the same numbers, only slower; twice at most
        (O1). `generators` are those besides `rng` that `fn` draws from. `fallback`: what a thriftier way of the engine
        is called, and its function; tried last if `compute.oom_fallback` is on, and noted in the output (O2).
        """
        attempt = _Attempt(self, (self.rng, *generators))
        retries = MAX_RETRIES if self.manager.policy.oom_retry else 0
        for retry in range(retries + 1):
            outcome = attempt.run(name, handles, fn, memory)
            if not isinstance(outcome, NotEnoughMemory):
                self._note_retries(name, retry)
                return outcome
            if retry == retries or not self.manager.after_oom(handles):
                break
        if fallback is None or not self.manager.policy.oom_fallback:
            raise NotEnoughMemory(f"{self.phase}, {name}: {outcome}; shorten the text, or free memory of the device")
        what, thrifty = fallback
        outcome = attempt.run(what, handles, thrifty, 0)
        if isinstance(outcome, NotEnoughMemory):
            raise NotEnoughMemory(f"{self.phase}, {name}: {outcome}, even with {what}")
        self.applied.setdefault("fallbacks", []).append(what)  # type: ignore[attr-defined]
        self.warn(f"{name}: memory ran out, so {what} was used; the result differs slightly")
        return outcome

    def _note_retries(self, name: str, retries: int) -> None:
        if retries:
            self.applied["oom_retries"] = int(str(self.applied.get("oom_retries", 0))) + retries
            self.warn(f"{name}: memory ran out {retries} times; ran again with more weights streamed, the same result")

    def _note(self, handles: Sequence[ModelHandle]) -> None:
        for handle in handles:
            self._components[handle.name] = ComponentMemory(
                size_bytes=handle.size_bytes, loaded_bytes=self.manager.loaded_bytes(handle)
            )

    def check(self) -> None:
        """Raise if the request was cancelled."""
        self.callbacks.check()
        self.manager.host.check()

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
        for _, running in self._open:
            self._note(running.handles)
            self._take_over(running)
        return MemoryReport(
            device=self.device,
            components=dict(self._components),
            streamed_bytes=self._streamed_bytes,
            partial=dict(self._partial),
        )


class _Attempt:
    """Runs a function again from the same state: its generators, the notes and the warnings of the phase."""

    def __init__(self, ctx: PhaseContext, generators: Sequence[Generator]) -> None:
        self._ctx = ctx
        self._states = [(generator, generator.get_state()) for generator in generators]
        self._notes = dict(ctx.applied), list(ctx.warnings)

    def run(
        self, step: str, handles: Sequence[ModelHandle], fn: Callable[[], Result], memory: int
    ) -> Result | NotEnoughMemory:
        """`fn()`, or a NotEnoughMemory without the frames of the attempt, which hold its tensors."""
        for generator, state in self._states:
            generator.set_state(state)
        applied, warnings = self._notes
        self._ctx.applied, self._ctx.warnings = dict(applied), list(warnings)
        try:
            with self._ctx.use(handles, memory, step=step):
                return fn()
        except Exception as error:
            if not self._ctx.manager.host.is_out_of_memory(error):
                raise
            return NotEnoughMemory(str(error))
