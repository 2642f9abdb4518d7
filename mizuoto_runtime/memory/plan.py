"""Which units stay on the device and which stream: arithmetic on sizes, without torch.

A streamed unit is copied each time it runs, so a resident one saves `runs · size_bytes` a request. Streaming needs room
for the copies that are held at once. The plan is the choice that copies the fewest bytes within the budget.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .schedule import Schedule, bettered

NODE_LIMIT = 4_000
CLOSE_ENOUGH = 1.005


@dataclass(frozen=True)
class UnitCost:
    """One unit. runs: how often it runs in a request; order: its place among the units when the request runs.

    needs_slot: whether it's copied whole when it isn't resident; an embedding whose rows are gathered isn't.
    """

    name: str
    size_bytes: int
    runs: float
    order: int
    needs_slot: bool = True


@dataclass(frozen=True)
class Plan:
    """resident: names that stay. slot_bytes: size of one copy; slots: how many are held at once; fits: in budget."""

    resident: frozenset[str]
    slot_bytes: int
    slots: int
    fits: bool

    @property
    def reserve_bytes(self) -> int:
        return self.slot_bytes * self.slots


def plan(units: Sequence[UnitCost], budget_bytes: int, slots: int = 1, order: Sequence[str] = ()) -> Plan:
    """The residency that copies the fewest bytes. Below the minimum it's that of the minimum, and `fits` is false.

    order: names of the units as they ran last time, if that is known.
    """
    if sum(unit.size_bytes for unit in units) <= budget_bytes:
        return Plan(frozenset(unit.name for unit in units), 0, 0, True)
    least_bytes = minimum_bytes(units, slots)
    room = max(budget_bytes, least_bytes)
    sizes = sorted({0} | {unit.size_bytes for unit in units if unit.needs_slot})
    found = [choice for size in sizes if (choice := _plan_with_slot(units, room, slots, size)) is not None]
    schedule = Schedule(order, {unit.name: unit.size_bytes for unit in units if unit.needs_slot})
    best = _bettered(found, schedule, units, room) if schedule.repeats else max(found, key=lambda choice: choice[0])[1]
    return replace(best, fits=budget_bytes >= least_bytes)


def _bettered(
    found: Sequence[tuple[float, Plan]], schedule: Schedule, units: Sequence[UnitCost], room_bytes: int
) -> Plan:
    """The plan that copies the fewest bytes in the order of the schedule."""
    gathered = {unit.name: unit.size_bytes for unit in units if not unit.needs_slot}
    choices: list[tuple[int, float, Plan]] = []
    for saved, choice in found:
        kept = choice.resident & gathered.keys()
        room = room_bytes - choice.reserve_bytes - sum(gathered[name] for name in kept)
        resident, copied = bettered(schedule, choice.resident - kept, room, choice.slot_bytes, choice.slots)
        choices.append((copied, -saved, replace(choice, resident=resident | kept)))
    return min(choices, key=lambda choice: choice[:2])[2]


def minimum_bytes(units: Sequence[UnitCost], slots: int = 1) -> int:
    """The least budget with which `plan` fits."""
    sizes = sorted((unit.size_bytes for unit in units if unit.needs_slot), reverse=True)
    return min(
        sum(sizes[:kept]) + min(slots, len(sizes) - kept) * (sizes[kept] if kept < len(sizes) else 0)
        for kept in range(len(sizes) + 1)
    )


def _plan_with_slot(
    units: Sequence[UnitCost], budget_bytes: int, slots: int, slot_bytes: int
) -> tuple[float, Plan] | None:
    """The best plan whose largest streamed unit has `slot_bytes`: all larger ones stay."""
    kept = [unit for unit in units if unit.needs_slot and unit.size_bytes > slot_bytes]
    others = [unit for unit in units if not unit.needs_slot or unit.size_bytes <= slot_bytes]
    used_slots = min(slots, sum(unit.needs_slot for unit in others))
    room = budget_bytes - used_slots * slot_bytes - sum(unit.size_bytes for unit in kept)
    if room < 0:
        return None
    chosen = kept + fill(others, room)
    saved = sum(unit.runs * unit.size_bytes for unit in chosen)
    return saved, Plan(frozenset(unit.name for unit in chosen), slot_bytes, used_slots, True)


def fill(units: Sequence[UnitCost], room_bytes: int) -> list[UnitCost]:
    """The units that save most within `room_bytes`: branch and bound over runs, then size, then order."""
    ranked = sorted(units, key=lambda unit: (-unit.runs, -unit.size_bytes, unit.order))
    return _Search(ranked, room_bytes).best()


class _Search:
    """Depth-first search for the subset with the largest Σ runs · size that fits, cut by the fractional bound."""

    def __init__(self, ranked: Sequence[UnitCost], room_bytes: int) -> None:
        self._ranked = ranked
        self._room = room_bytes
        self._bound = _bounds(ranked)
        self._best_value = -1.0
        self._best: tuple[int, ...] = ()
        self._nodes = 0
        total = sum(unit.runs * unit.size_bytes for unit in ranked)
        self._enough = total - CLOSE_ENOUGH * (total - self._bound(0, room_bytes))

    def best(self) -> list[UnitCost]:
        self._visit(0, self._room, 0.0, ())
        return [self._ranked[index] for index in self._best]

    def _visit(self, index: int, room: int, value: float, taken: tuple[int, ...]) -> None:
        stack = [(index, room, value, taken)]
        while stack and self._best_value < self._enough and self._nodes < NODE_LIMIT:
            index, room, value, taken = stack.pop()
            self._nodes += 1
            if value > self._best_value:
                self._best_value, self._best = value, taken
            if index == len(self._ranked) or value + self._bound(index, room) <= self._best_value:
                continue
            unit = self._ranked[index]
            stack.append((self._next_other(index), room, value, taken))
            if unit.size_bytes <= room:
                gain = value + unit.runs * unit.size_bytes
                stack.append((index + 1, room - unit.size_bytes, gain, (*taken, index)))

    def _next_other(self, index: int) -> int:
        """The next unit that differs in size or runs: leaving out one of equals and taking the next gains nothing."""
        unit = self._ranked[index]
        while index < len(self._ranked) and (self._ranked[index].size_bytes, self._ranked[index].runs) == (
            unit.size_bytes,
            unit.runs,
        ):
            index += 1
        return index


def _bounds(ranked: Sequence[UnitCost]) -> Callable[[int, int], float]:
    """bound(index, room): the most that the units from `index` on could save in `room`, were they divisible."""
    sizes, values = [0], [0.0]
    for unit in ranked:
        sizes.append(sizes[-1] + unit.size_bytes)
        values.append(values[-1] + unit.runs * unit.size_bytes)

    def bound(index: int, room: int) -> float:
        last = bisect_right(sizes, sizes[index] + room) - 1
        rest = room - (sizes[last] - sizes[index])
        partly = ranked[last].runs * rest if last < len(ranked) else 0.0
        return values[last] - values[index] + partly

    return bound
