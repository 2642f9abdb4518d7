"""A handle on one component's weights: how they are divided, where they are, and what moves when they are placed.

Off the device everything hangs in RAM. Whole: every group is resident, and no call goes through a gate. Partial: the
fixed part and the resident units are on the device, the other units stream.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..types import Kind
from .absent import absent_weight
from .device import Device
from .group import Entry, moved
from .intercept import intercept, release
from .plan import Plan, UnitCost, minimum_bytes, plan
from .streamer import CountedUnit, StreamedUnit, Streamer
from .units import Division, Mark, Unit, divide

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .copies import Copies

EXPECTED_RUNS: Mapping[Mark, float] = {"hot": 16.0, "normal": 4.0, "cold": 1.0}
NOTICEABLE = 0.25


@dataclass(frozen=True)
class Placement:
    """Where a handle is to be, and how.

    budget_bytes: for everything that it holds there. slots: copies that are held at once.
    """

    device: Device
    budget_bytes: int
    slots: int
    keep_host: bool
    copies: Callable[[], Copies]


class ModelHandle:
    """One component of a loaded model.

    cap_bytes: the most that it may hold on a device, set after it ran out of memory. last_used: the manager's clock.
    """

    def __init__(
        self, name: str, module: nn.Module, kind: Kind, *, stays: Callable[[nn.Module], bool] = lambda module: False
    ) -> None:
        self.name = name
        self.module = module
        self.kind = kind
        self.cap_bytes: int | None = None
        self.last_used = 0
        self.lock = threading.RLock()
        self.marks: dict[nn.Module, Mark] = {}
        self._stays = stays
        self._division: Division | None = None
        self._costs: list[UnitCost] | None = None
        self._runs: dict[str, float] = {}
        self._device: Device | None = None
        self._plan: Plan | None = None
        self._plan_room = 0
        self._plan_used = 0
        self._placed: list[Unit] = []
        self._streamer: Streamer | None = None
        self._gates: dict[str, StreamedUnit | CountedUnit] = {}
        self._users = 0

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.unload()

    @property
    def busy(self) -> bool:
        """Whether a phase is using the handle now."""
        return self._users > 0

    @property
    def device_name(self) -> str:
        """Where the handle is, "cpu" while nothing of it is placed."""
        return "cpu" if self._device is None else self._device.name

    @property
    def division(self) -> Division:
        """The weights divided into what is fixed and what streams."""
        if self._division is None:
            self._division = divide(self.module, self.marks, self._stays)
            self._costs = None
        return self._division

    @property
    def fixed_bytes(self) -> int:
        """Bytes that are on the device whenever the handle is."""
        division = self.division
        return division.fixed.size_bytes + division.buffers.size_bytes + _opaque_bytes(division.opaque)

    @property
    def size_bytes(self) -> int:
        """Bytes of all weights that can be placed."""
        return self.fixed_bytes + sum(unit.group.size_bytes for unit in self.division.units)

    @property
    def loaded_bytes(self) -> int:
        """Bytes of weights that are on the device."""
        if self._division is None or self._device is None:
            return 0
        placed = sum(group.size_bytes for group in self._division.groups if group.placed_block is not None)
        return placed + (_opaque_bytes(self._division.opaque) if self._plan is not None else 0)

    @property
    def resident(self) -> tuple[str, ...]:
        """Names of the units that are on the device, in running order."""
        return tuple(unit.name for unit in self.division.units if unit.group.placed_block is not None)

    @property
    def streamed_bytes(self) -> int:
        """Bytes copied since the handle began to stream."""
        return 0 if self._streamer is None else self._streamer.streamed_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the device that the handle holds: its weights there, and the slots that it streams through."""
        return self.loaded_bytes + (0 if self._streamer is None else self._streamer.size_bytes)

    @property
    def whole(self) -> bool:
        """Whether everything is on the device."""
        return self._plan is not None and self._plan.slots == 0

    def costs(self) -> list[UnitCost]:
        """The units for the planner, with how often each ran in its last request, else what its mark makes expect."""
        if self._costs is None:
            self._costs = [
                UnitCost(unit.name, unit.group.size_bytes, self._expected_runs(unit), unit.order)
                for unit in self.division.units
            ]
        return self._costs

    def minimum_bytes(self, slots: int) -> int:
        """The least with which the handle works (U6)."""
        return self.fixed_bytes + minimum_bytes(self.costs(), slots)

    def mark(self, module: nn.Module, mark: Mark) -> None:
        """Say how a submodule may be placed: `fixed` never streams, `hot` stays first, `cold` streams first."""
        if all(module is not known for known in self.module.modules()):
            raise ValueError(f"{type(module).__name__} isn't a part of component {self.name!r}")
        with self.lock:
            self._require_idle("mark its parts")
            self.unload()
            self._forget_division()
            self.marks[module] = mark

    def replace(self, module: nn.Module) -> None:
        """Put other weights in the component's place; marks go with the old ones."""
        with self.lock:
            self._require_idle("replace its weights")
            self.unload()
            self._forget_division()
            self.module = module
            self.marks.clear()
            self._runs.clear()

    def place(self, placement: Placement) -> None:
        """Be on the device with at most the budget's bytes, slots included. Moves only what has to move.

        NotEnoughMemory leaves every weight where the books say it is; placing again goes on from there.
        """
        with self.lock:
            if self._device is not placement.device:
                self.unload()
                self._forget_division()
            self.learn()
            wanted = self._planned(placement)
            if wanted == self._plan:
                return
            self._plan = None
            self._device = placement.device
            self._shed(wanted)
            self._place_fixed(placement)
            if wanted.slots:
                self._open_slots(placement, wanted)
            for unit in self.division.units:
                if unit.name in wanted.resident:
                    self._make_resident(unit, placement)
            self._plan = wanted

    def partially_unload(self, size_bytes: int) -> int:
        """Let go of at least `size_bytes` if the handle holds them: its slots, then units, the last placed first.

        Returns the bytes let go of. If units alone aren't enough, everything leaves.
        """
        with self.lock:
            if self._device is None:
                return 0
            freed = self._close_slots()
            for unit in reversed(self._placed):
                if freed >= size_bytes:
                    break
                freed += self._stream_unit(unit)
            if freed < size_bytes:
                freed += self.unload()
            self._plan = None
            return freed

    def unload(self) -> int:
        """Leave the device with everything; returns the bytes let go of."""
        with self.lock:
            if self._device is None or self._division is None:
                return 0
            freed = self.held_bytes
            self._close_slots()
            absent = self._absent
            for unit in self._division.units:
                self._ungate(unit)
                unit.group.leave(absent)
                unit.group.hang_host(absent)
            for group in (self._division.fixed, self._division.buffers):
                group.leave(absent)
            for entry in self._division.opaque:
                entry.hang(entry.host)
            self._placed.clear()
            self._plan = None
            self._device = None
            self.cap_bytes = None
            return freed

    def enter(self) -> None:
        """A phase begins to use the handle; it doesn't yield until `leave`."""
        with self.lock:
            self._users += 1

    def leave(self, clock: int) -> None:
        """A phase that used the handle has ended, at this time of the manager's clock."""
        with self.lock:
            self._users -= 1
            self.last_used = clock

    def drop_copies(self) -> None:
        """Forget the copies in the slots."""
        if self._streamer is not None:
            self._streamer.drop()

    def unload_if_idle(self) -> int:
        """As `unload`, unless a phase uses the handle; one that begins meanwhile waits, and places it again."""
        with self.lock:
            return 0 if self.busy else self.unload()

    def learn(self) -> None:
        """Take over how often each unit ran since the last time, relative to the one that ran most."""
        most = max((gate.runs for gate in self._gates.values()), default=0)
        if not most:
            return
        for name, gate in self._gates.items():
            runs = EXPECTED_RUNS["hot"] * gate.runs / most
            gate.runs = 0
            if abs(runs - self._runs.get(name, -1.0)) > NOTICEABLE * runs:
                self._runs[name] = runs
                self._costs = self._plan = None

    def _forget_division(self) -> None:
        """Hang every weight in RAM, also where placeholders hung; the module is divided anew when next needed."""
        if self._division is not None:
            for group in self._division.groups:
                group.hang_host()
        self._division = self._costs = None

    def _expected_runs(self, unit: Unit) -> float:
        return self._runs.get(unit.name, EXPECTED_RUNS.get(unit.mark, EXPECTED_RUNS["normal"]))

    def _planned(self, placement: Placement) -> Plan:
        """The plan for the budget; the present one as long as it fits and another couldn't keep one more unit."""
        budget = placement.budget_bytes
        if self.cap_bytes is not None:
            budget = min(budget, self.cap_bytes)
        room = budget - self.fixed_bytes
        present = self._plan
        if present is not None and self._plan_used <= room < self._plan_room + self._least_gain(present):
            return present
        wanted = plan(self.costs(), room, placement.slots)
        self._plan_room = room
        self._plan_used = wanted.reserve_bytes + sum(
            unit.group.size_bytes for unit in self.division.units if unit.name in wanted.resident
        )
        return wanted

    def _least_gain(self, present: Plan) -> int:
        streamed = [unit.size_bytes for unit in self.costs() if unit.name not in present.resident]
        return min(streamed, default=1 << 62)

    def _shed(self, wanted: Plan) -> None:
        """Let go of what the plan doesn't keep, before anything is added."""
        for unit in reversed(tuple(self._placed)):
            if unit.name not in wanted.resident:
                self._stream_unit(unit)
        held = self._streamer
        if held is not None and (held.slot_bytes, held.slots) != (wanted.slot_bytes, wanted.slots):
            self._close_slots()

    def _place_fixed(self, placement: Placement) -> None:
        division = self.division
        division.fixed.place(placement.device, keep_host=placement.keep_host or bool(division.units))
        division.buffers.place(placement.device, keep_host=True)
        for entry in division.opaque:
            entry.hang(moved(entry.host, placement.device.torch_device))

    def _open_slots(self, placement: Placement, wanted: Plan) -> None:
        if self._streamer is None:
            self._streamer = Streamer(
                placement.device, wanted.slot_bytes, wanted.slots, placement.copies()
            )
        for unit in self.division.units:
            if unit.name not in wanted.resident and unit.name not in self._gates:
                gate = StreamedUnit(unit.group, self._streamer, self._absent)
                self._gate(unit, gate)

    def _make_resident(self, unit: Unit, placement: Placement) -> None:
        if unit.group.placed_block is not None:
            return
        self._ungate(unit)
        unit.group.place(placement.device, keep_host=placement.keep_host)
        self._placed.append(unit)
        if self._streamer is not None:
            self._gate(unit, CountedUnit())

    def _stream_unit(self, unit: Unit) -> int:
        self._ungate(unit)
        self._placed.remove(unit)
        return unit.group.leave(self._absent)

    def _close_slots(self) -> int:
        """Give the slots back; units that streamed through them hang in RAM."""
        if self._streamer is None:
            return 0
        freed = self._streamer.size_bytes
        for unit in self.division.units:
            self._ungate(unit)
        self._streamer.close()
        self._streamer = None
        return freed

    def _gate(self, unit: Unit, gate: StreamedUnit | CountedUnit) -> None:
        self._gates[unit.name] = gate
        for module in unit.modules if isinstance(gate, StreamedUnit) else unit.modules[:1]:
            intercept(module, gate)

    def _ungate(self, unit: Unit) -> None:
        if self._gates.pop(unit.name, None) is not None:
            for module in unit.modules:
                release(module)

    @property
    def _absent(self) -> Callable[[Entry], Tensor] | None:
        strict = self._device is not None and self._device.strict
        return absent_weight if strict else None

    def _require_idle(self, what: str) -> None:
        if self.busy:
            raise RuntimeError(f"component {self.name!r} is in use; {what} between phases")


def _opaque_bytes(entries: list[Entry]) -> int:
    return sum(entry.host.nbytes for entry in entries)
