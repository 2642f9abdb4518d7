"""A handle on one component's weights: where they are.

Off the device everything hangs in RAM. Whole: every unit is resident, and no call goes through a gate. Partial: the
fixed part and the resident units are on the device, the other units stream.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..types import Kind, ModelRef
from .allotment import Allotment
from .component import Component
from .device import Device
from .gates import StreamedUnit
from .residence import Residence
from .units import Mark

if TYPE_CHECKING:
    from torch import nn

    from .current import RunningPhase
    from .pinning import Pins

@dataclass(frozen=True)
class Pass:
    """What some calls did: how often each unit ran, by its name, and the bytes copied."""

    runs: Mapping[str, int]
    streamed_bytes: int

    def __sub__(self, earlier: Pass) -> Pass:
        runs = {name: runs - earlier.runs.get(name, 0) for name, runs in self.runs.items()}
        return Pass(runs, self.streamed_bytes - earlier.streamed_bytes)


@dataclass(frozen=True)
class Cap:
    """What a handle may hold after it ran out of memory while `budget_bytes` were to be had; more if more is."""

    size_bytes: int
    budget_bytes: int | None = None


class ModelHandle(Component):
    """One component of a loaded model, and where it is.

    model: which one, once that is known. last_used: the manager's clock. allotment: what it was given, while it has all
    of that; placement: another number whenever that changed, and weights may have moved; allotted_bytes: its weights in
    that, also if placing them failed. gave_up_for: those for which it gave memory up since it was last whole. entry:
    what the application around knows it by, gone when it is.
    """

    def __init__(
        self, name: str, module: nn.Module, kind: Kind, *, stays: Callable[[nn.Module], bool] = lambda module: False
    ) -> None:
        super().__init__(name, module, kind, stays=stays)
        self.model: ModelRef | None = None
        self.last_used = 0
        self.placement = 0
        self._allotment: Allotment | None = None
        self.allotted_bytes = 0
        self.cap: Cap | None = None
        self.gave_up_for = ""
        self.entry: object = None
        self.lock = threading.RLock()
        self.residence: Residence | None = None
        self._users: set[RunningPhase] = set()

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():
            self._forget_division()

    @property
    def allotment(self) -> Allotment | None:
        return self._allotment

    @allotment.setter
    def allotment(self, allotment: Allotment | None) -> None:
        if allotment is not self._allotment:
            self._allotment = allotment
            self.placement += 1

    @property
    def busy(self) -> bool:
        """Whether a phase is using the handle now."""
        return bool(self._users)

    @property
    def kept(self) -> bool:
        """Whether another phase uses the handle as it is placed now, so that it mustn't change."""
        return len(self._users) > 1 and self.allotment is not None

    def is_on(self, device: Device) -> bool:
        """Whether something of the handle is on `device`."""
        residence = self.residence
        return residence is not None and residence.device is device

    def placed_on(self, device: Device) -> bool:
        """Whether the handle has what it was given of `device`."""
        return self.allotment is not None and self.is_on(device)

    @property
    def device_name(self) -> str:
        """Where the handle is, "cpu" while nothing of it is placed."""
        residence = self.residence
        return "cpu" if residence is None else residence.device.name

    @property
    def loaded_bytes(self) -> int:
        """Bytes of weights that are on the device."""
        residence = self.residence
        return 0 if residence is None else residence.loaded_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the device in the handle's books: its weights there, and slots that it streams through."""
        residence = self.residence
        return 0 if residence is None else residence.held_bytes

    @property
    def streamed_bytes(self) -> int:
        """Bytes copied since the handle came to the device."""
        residence = self.residence
        return 0 if residence is None else residence.streamed_bytes

    @property
    def resident(self) -> tuple[str, ...]:
        """Names of the units that are on the device, in running order."""
        residence = self.residence
        there = frozenset[str]() if residence is None else residence.resident
        return tuple(unit.name for unit in self.division.units if unit.name in there)

    @property
    def whole(self) -> bool:
        """Whether everything is on the device."""
        return self.allotment is not None and self.loaded_bytes == self.size_bytes

    @property
    def graphable(self) -> bool:
        """Whether a CUDA graph of the component can be captured: nothing streams, or only from pinned memory (S8)."""
        if self.whole:
            return True
        if self.kind != "sequence" or self.allotment is None or self.residence is None:
            return False
        gates = self.residence.gates().values()
        return all(not isinstance(gate, StreamedUnit) or self.residence.pins.holds(gate.host) for gate in gates)

    def limit_bytes(self, budget_bytes: int) -> int:
        """The most that the handle may hold of a phase's budget: all that it weighs, unless it ran out of memory.

        Its cap rises by what the budget is larger than the one it was set for, and lifts when everything fits.
        """
        if self.cap is None:
            return self.size_bytes
        if self.cap.budget_bytes is None:
            self.cap = Cap(self.cap.size_bytes, budget_bytes)
        limit = self.cap.size_bytes + max(0, budget_bytes - (self.cap.budget_bytes or 0))
        if limit >= self.size_bytes:
            self.cap = None
        return min(limit, self.size_bytes)

    def mark(self, module: nn.Module, mark: Mark) -> None:
        with self.lock:
            self._require_idle("mark its parts")
            super().mark(module, mark)

    def replace(self, module: nn.Module) -> None:
        with self.lock:
            self._require_idle("replace its weights")
            super().replace(module)

    def renew(self) -> None:
        with self.lock:
            super().renew()

    def begin(self, device: Device, pins: Pins) -> Residence:
        """The residence on `device`; a new one if the handle was elsewhere."""
        with self.lock:
            self.allotment = None
            if self.residence is not None and self.residence.device is not device:
                self._forget_division()
            if self.residence is None:
                self.residence = Residence(self.division, device, pins)
            return self.residence

    def come_home(self) -> None:
        """Leave the device, and hang every weight in RAM, for another handle that shares some of them."""
        with self.lock:
            if self._division is not None:
                self._forget_division()

    def partially_unload(self, size_bytes: int) -> int:
        """Let go of at least `size_bytes` if the handle holds them: its slots, then units, the last placed first.

        Returns the bytes let go of. If units alone aren't enough, everything leaves.
        """
        with self.lock:
            if self.residence is None:
                return 0
            self.learn()
            self.allotment = None
            freed = self.residence.stop_streaming()
            if freed < size_bytes:
                freed += self.residence.let_go(size_bytes=size_bytes - freed)
            if freed < size_bytes:
                freed += self.unload()
            return freed

    def unload(self, *, rewritten: bool = False) -> int:
        """Leave the device with everything; returns the bytes let go of. rewritten: bring every weight back."""
        with self.lock:
            if self.residence is None:
                return 0
            self.learn()
            self.allotment = None
            freed = self.residence.leave(rewritten=rewritten)
            self.residence = None
            self.cap = None
            self._sizes = None
            return freed

    def unload_if_idle(self) -> int:
        """As `unload`, unless a phase uses the handle; one that begins meanwhile waits, and places it again."""
        with self.lock:
            return 0 if self.busy else self.unload()

    @property
    def host_copy_bytes(self) -> int:
        """Bytes in RAM of weights that are on the device too and could be dropped there; of whole handles only."""
        return self.residence.host_copy_bytes if self.residence is not None and self.whole else 0

    def drop_host_copies(self) -> int:
        """Keep a whole handle on the device alone; returns the bytes of RAM given up. It comes back by a transfer."""
        with self.lock:
            return self.residence.drop_host_copies() if self.residence is not None and self.whole else 0

    def enter(self, phase: RunningPhase) -> None:
        """A phase begins to use the handle; it doesn't yield until `leave`."""
        with self.lock:
            self._users.add(phase)

    def leave(self, phase: RunningPhase, clock: int) -> None:
        """If that phase used the handle, it has ended, at this time of the manager's clock."""
        with self.lock:
            if phase in self._users:
                self.last_used = clock
                self._users.discard(phase)

    def drop_copies(self) -> None:
        """Forget the copies in the slots, as before and after a CUDA graph's capture, which must do every copy anew."""
        streamer = None if self.residence is None else self.residence.streamer
        if streamer is not None:
            streamer.drop()

    @property
    def passed(self) -> Pass:
        """What was done since the handle was placed as it is."""
        gates = {} if self.residence is None else self.residence.gates()
        return Pass({name: gate.runs for name, gate in gates.items()}, self.streamed_bytes)

    def replayed(self, recorded: Pass | None = None) -> None:
        """Count what the replay of a CUDA graph did, and forget what the slots held before.

        recorded: what was done when it was captured; None: every streamed unit was copied once.
        """
        residence = self.residence
        if residence is not None and residence.gates():
            residence.count_pass(None if recorded is None else (recorded.runs, recorded.streamed_bytes))
            self.drop_copies()

    def uncount(self, recorded: Pass) -> None:
        """Take back what was counted while a CUDA graph was captured: nothing ran then."""
        if self.residence is not None and self.residence.gates():
            runs = {name: -each for name, each in recorded.runs.items()}
            self.residence.count_pass((runs, -recorded.streamed_bytes))

    def learn(self) -> None:
        """Take over how often each unit ran since the last time."""
        if self.residence is None:
            return
        if self.usage.learn(self.residence.gates(), self.residence.trace):
            self._changed()

    def _forget_division(self, *, rewritten: bool = False) -> None:
        self.unload(rewritten=rewritten)
        super()._forget_division(rewritten=rewritten)

    def _require_idle(self, what: str) -> None:
        if self.busy:
            raise RuntimeError(f"component {self.name!r} is in use; {what} between phases")
