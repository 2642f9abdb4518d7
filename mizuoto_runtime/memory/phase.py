"""What a phase function gets to work with: its device, its random numbers, placement, progress, cancel, notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..errors import NotEnoughMemory
from ..types import Callbacks, ComponentMemory, MemoryReport, Progress
from . import current
from .current import RunningPhase
from .handle import ModelHandle
from .manager import ModelManager
from .policy import KvCache
from .working import PhaseId
from .workspace import Measurement

if TYPE_CHECKING:
    from torch import Generator

Result = TypeVar("Result")
MAX_RETRIES = 2


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
    _open: list[Block] = field(default_factory=list)
    _components: dict[str, ComponentMemory] = field(default_factory=dict)
    _streamed_bytes: int = 0
    _peak_bytes: int = 0
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

    def use(self, handles: Sequence[ModelHandle], memory: int, *, step: str = "use") -> Block:
        """Keep `handles` on the device, with `memory` bytes of room beside them, until the block ends (P2).

        A block that is never left, as in a generator that nobody asks again, ends with the phase. `step` tells the
        phase's blocks apart when their working memory is measured.
        """
        return Block(self, tuple(dict.fromkeys(handles)), memory, step)

    def close(self) -> None:
        """The phase is over: end the blocks of `use` that were never left."""
        with ExitStack() as ending:
            for block in self._open:
                ending.callback(block.end)
                ending.callback(self._note, block.running.handles)

    def _take_over(self, running: RunningPhase) -> None:
        self._peak_bytes = max(self._peak_bytes, running.peak_bytes)
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
        for block in self._open:
            self._note(block.running.handles)
            self._take_over(block.running)
        return MemoryReport(
            device=self.device,
            components=dict(self._components),
            streamed_bytes=self._streamed_bytes,
            peak_bytes=None if self.manager.device.plain else self._peak_bytes,
            partial=dict(self._partial),
        )


class Block:
    """One block of `PhaseContext.use`, from entering to leaving it."""

    running: RunningPhase

    def __init__(self, ctx: PhaseContext, handles: tuple[ModelHandle, ...], memory_bytes: int, step: str) -> None:
        self._ctx = ctx
        self._handles = handles
        self._memory_bytes = memory_bytes
        self._step = step
        self._measurement: Measurement | None = None

    def __enter__(self) -> None:
        ctx, manager = self._ctx, self._ctx.manager
        ctx.check()
        self._device = device = manager.device
        self._key = key = manager.working.key(ctx.id, self._step, self._handles, device, self._memory_bytes)
        self.running = RunningPhase(ctx.check, handles=self._handles, outer=current.phase())
        try:
            ctx._open.append(self)
            manager.begin(self.running, manager.working.needed_bytes(key, self._memory_bytes), device)
            if key is not None:
                self._measurement = manager.working.meter.start(device)
        except BaseException:
            self.end()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is None and self in self._ctx._open:
                self._ctx._note(self._handles)
        finally:
            self.end(well=kind is None)

    def end(self, *, well: bool = False) -> None:
        """Leave the block, unless it was left; what it took is learnt if that was `well`.

        If that is broken off, it can be done again: `PhaseContext.close` does.
        """
        if self not in self._ctx._open:
            return
        manager, measurement, self._measurement = self._ctx.manager, self._measurement, None
        try:
            self.running.peak_bytes = sum(handle.held_bytes for handle in self._handles)
            if measurement is not None and self._key is not None:
                measured = manager.working.learn(self._key, measurement, self._memory_bytes, well=well)
                self.running.peak_bytes += measured or 0
        finally:
            manager.end(self.running, self._device)
            self._ctx._take_over(self.running)
            self.running.handles = ()
            self._ctx._open.remove(self)


class _Attempt:
    """Runs a function again from the same state: its generators, the notes and the warnings of the phase."""

    def __init__(self, ctx: PhaseContext, generators: Sequence[Generator]) -> None:
        self._ctx = ctx
        self._states = [(generator, generator.get_state()) for generator in generators]
        self._notes = deepcopy(ctx.applied), list(ctx.warnings)

    def run(
        self, step: str, handles: Sequence[ModelHandle], fn: Callable[[], Result], memory: int
    ) -> Result | NotEnoughMemory:
        """`fn()`, or a NotEnoughMemory without the frames of the attempt, which hold its tensors."""
        for generator, state in self._states:
            generator.set_state(state)
        applied, warnings = self._notes
        self._ctx.applied, self._ctx.warnings = deepcopy(applied), list(warnings)
        try:
            with self._ctx.use(handles, memory, step=step):
                return fn()
        except Exception as error:
            if not self._ctx.manager.host.is_out_of_memory(error):
                raise
            return NotEnoughMemory(str(error))
