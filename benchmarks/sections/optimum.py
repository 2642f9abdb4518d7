"""The fewest bytes that any choice of resident units and slots copies, found exactly and apart from the runtime's plan.

A choice is a set of units that stay, and a number of slots, each as large as the largest unit that doesn't. A unit that
runs and is in no slot is copied into one, chosen with the whole order of runs known. Units that are alike (same size,
same number of runs, one after the other in every pass) are interchangeable, so only how many of them stay matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

MAX_SLOTS = 3


def fewest_bytes(
    sizes: Mapping[int, int], schedule: Sequence[int], budget_bytes: int, alike: Sequence[Sequence[int]] = ()
) -> int:
    """Bytes copied by the best choice. sizes: of each unit, by number; schedule: the units in running order.

    budget_bytes: for units and slots together. alike: groups of interchangeable units. ValueError if nothing fits.
    """
    candidates = []
    for resident in choices(sizes, alike):
        streamed = [unit for unit in sizes if unit not in resident]
        held = sum(sizes[unit] for unit in resident)
        if held > budget_bytes:
            continue
        if not streamed:
            return 0
        slot_bytes = max(sizes[unit] for unit in streamed)
        runs = [unit for unit in schedule if unit not in resident]
        for slots in range(1, min(MAX_SLOTS, len(streamed)) + 1):
            if held + slots * slot_bytes <= budget_bytes:
                candidates.append((lower_bound(sizes, runs, slots), slots, runs))
    if not candidates:
        raise ValueError(f"no choice fits {budget_bytes:,} bytes")
    candidates.sort(key=lambda candidate: candidate[:2])
    best: int | None = None
    for bound, slots, runs in candidates:
        if best is not None and bound >= best:
            break
        copied = copied_bytes(sizes, runs, slots)
        best = copied if best is None else min(best, copied)
    assert best is not None
    return best


def lower_bound(sizes: Mapping[int, int], schedule: Sequence[int], slots: int) -> int:
    """Bytes that `slots` slots can't save: in a stretch of different units, all but as many as there are slots.

    Each stretch goes on until a unit would repeat. The first finds the slots empty.
    """
    total, stretch, spared = 0, set[int](), 0
    for unit in schedule:
        if unit in stretch:
            total += _but_largest(sizes, stretch, spared)
            stretch, spared = set(), slots
        stretch.add(unit)
    return total + _but_largest(sizes, stretch, spared)


def _but_largest(sizes: Mapping[int, int], units: Iterable[int], spared: int) -> int:
    ordered = sorted((sizes[unit] for unit in units), reverse=True)
    return sum(ordered[spared:])


def choices(sizes: Mapping[int, int], alike: Sequence[Sequence[int]]) -> Iterator[frozenset[int]]:
    """Every set of units that may stay, the larger ones first; of units that are alike always the first."""
    grouped = {unit for group in alike for unit in group}
    single = [unit for unit in sizes if unit not in grouped]
    counts = [range(len(group), -1, -1) for group in alike]
    for number in range(len(single), -1, -1):
        for chosen in combinations(single, number):
            for taken in product(*counts):
                first = [unit for group, count in zip(alike, taken, strict=True) for unit in group[:count]]
                yield frozenset((*chosen, *first))


def copied_bytes(sizes: Mapping[int, int], schedule: Sequence[int], slots: int) -> int:
    """The fewest bytes copied with `slots` slots: every way to replace is followed, equal contents merged."""
    costs: dict[frozenset[int], int] = {frozenset(): 0}
    for unit in schedule:
        after: dict[frozenset[int], int] = {}
        for held, cost in costs.items():
            if unit in held:
                _keep(after, held, cost)
                continue
            if len(held) < slots:
                _keep(after, held | {unit}, cost + sizes[unit])
            for dropped in held if len(held) == slots else ():
                _keep(after, held - {dropped} | {unit}, cost + sizes[unit])
        costs = after
    return min(costs.values())


def _keep(costs: dict[frozenset[int], int], held: frozenset[int], cost: int) -> None:
    if cost < costs.get(held, cost + 1):
        costs[held] = cost
