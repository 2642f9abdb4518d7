"""Betters a plan by the order in which units really ran: arithmetic on sizes, without torch.

A unit stays in its slot while only residents run, so a unit that is streamed beside others of another part of the
request may be copied once, however often it runs. `runs · size` doesn't see that; the recorded order does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Which units ran, in order. sizes_bytes: of all units that may need a slot."""

    order: Sequence[str]
    sizes_bytes: Mapping[str, int]

    @property
    def repeats(self) -> bool:
        """Whether a unit runs again; else nothing can be bettered."""
        return len(set(self.order)) < len(self.order)

    def copied_bytes(self, resident: frozenset[str], slots: int) -> int:
        """What is copied in that order through `slots` slots, each filled anew in turn."""
        held: list[str] = []
        total = 0
        for unit in self.order:
            if unit in resident or unit in held:
                continue
            total += self.sizes_bytes[unit]
            if len(held) == slots:
                del held[0]
            held.append(unit)
        return total


def bettered(
    schedule: Schedule, resident: frozenset[str], room_bytes: int, slot_bytes: int, slots: int
) -> tuple[frozenset[str], int]:
    """A residency that copies fewer bytes in the recorded order, and these; `resident` itself if none is found.

    room_bytes: for residents. Units larger than `slot_bytes` stay. One unit is taken out, and the room filled with
    others in three orders, for as long as that helps.
    """
    best, fewest = resident, schedule.copied_bytes(resident, slots)
    search = _Search(schedule, room_bytes, slot_bytes)
    while True:
        found = min(
            ((schedule.copied_bytes(other, slots), other) for other in search.neighbours(best)),
            key=lambda pair: pair[0],
            default=(fewest, best),
        )
        if found[0] >= fewest:
            return best, fewest
        fewest, best = found


class _Search:
    def __init__(self, schedule: Schedule, room_bytes: int, slot_bytes: int) -> None:
        self._sizes = schedule.sizes_bytes
        self._runs = Counter(schedule.order)
        self._room_bytes = room_bytes
        self._slot_bytes = slot_bytes
        ranks: tuple[Callable[[str], tuple[int, ...]], ...] = (
            lambda unit: (-self._runs[unit], -self._sizes[unit]),
            lambda unit: (-self._sizes[unit],),
            lambda unit: (self._sizes[unit],),
        )
        self._ranked = [sorted(self._sizes, key=rank) for rank in ranks]

    def neighbours(self, resident: frozenset[str]) -> Iterator[frozenset[str]]:
        """The residencies that lack one unit of this one and hold what fits in its place; one of each kind of unit."""
        seen: set[tuple[int, int]] = set()
        for out in sorted(resident):
            kind = self._sizes[out], self._runs[out]
            if kind in seen or self._sizes[out] > self._slot_bytes:
                continue
            seen.add(kind)
            yield from (self._filled(resident - {out}, out, ranked) for ranked in self._ranked)

    def _filled(self, resident: frozenset[str], out: str, ranked: Sequence[str]) -> frozenset[str]:
        room = self._room_bytes - sum(self._sizes[unit] for unit in resident)
        added = []
        for unit in ranked:
            if unit not in resident and unit != out and self._sizes[unit] <= room:
                added.append(unit)
                room -= self._sizes[unit]
        return resident.union(added)
