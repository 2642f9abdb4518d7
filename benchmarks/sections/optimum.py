"""The fewest bytes that any choice of resident units and slots copies, found exactly and apart from the runtime's plan.

A choice is a set of units that stay, and a number of slots, each as large as the largest unit that doesn't. A unit that
runs and is in no slot is copied into one, whose content is chosen with the whole order of runs known (Belady 1966 for
units of one size). Units of different sizes have at most MAX_UNEVEN_SLOTS slots. Units that are alike (same size, same
number of runs, one after the other in every pass) are interchangeable, so only how many of them stay matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

MAX_UNEVEN_SLOTS = 3
NEVER = 1 << 60

Sizes = Mapping[int, int]
"""Bytes of each unit, by its number."""


def fewest_bytes(
    sizes: Sizes,
    schedule: Sequence[int],
    budget_bytes: int,
    alike: Sequence[Sequence[int]] = (),
    max_slots: int | None = None,
) -> int:
    """Bytes copied by the best choice. schedule: the units in running order; alike: groups of interchangeable units.

    budget_bytes: for units and slots together. max_slots: None for as many as fit. ValueError if nothing fits.
    """
    candidates = sorted(_candidates(sizes, schedule, budget_bytes, alike, max_slots), key=lambda found: found[:2])
    if not candidates:
        raise ValueError(f"no choice fits {budget_bytes:,} bytes")
    best: int | None = None
    for bound, slots, resident in candidates:
        if best is not None and bound >= best:
            break
        copied = copied_bytes(sizes, [unit for unit in schedule if unit not in resident], slots)
        best = copied if best is None else min(best, copied)
    assert best is not None
    return best


def floor_bytes(sizes: Sizes, schedule: Sequence[int], budget_bytes: int) -> int:
    """Bytes that no scheme can do without: what doesn't fit of each stretch in which no unit repeats, but the first."""
    later = _stretches(schedule)[1:]
    return sum(max(0, sum(sizes[unit] for unit in stretch) - budget_bytes) for stretch in later)


def _candidates(
    sizes: Sizes, schedule: Sequence[int], budget_bytes: int, alike: Sequence[Sequence[int]], max_slots: int | None
) -> Iterator[tuple[int, int, frozenset[int]]]:
    """(a lower bound of the bytes copied, slots, units that stay) of every choice that fits."""
    for resident in choices(sizes, alike):
        room = budget_bytes - sum(sizes[unit] for unit in resident)
        streamed = [sizes[unit] for unit in sizes if unit not in resident]
        if room < 0:
            continue
        if not streamed:
            yield 0, 0, resident
            continue
        most = len(streamed) if len(set(streamed)) == 1 else MAX_UNEVEN_SLOTS
        most = min(most, room // max(streamed), len(streamed), max_slots or NEVER)
        bounds = lower_bounds(sizes, [unit for unit in schedule if unit not in resident], most)
        yield from ((bound, slots, resident) for slots, bound in enumerate(bounds, 1))


def choices(sizes: Sizes, alike: Sequence[Sequence[int]]) -> Iterator[frozenset[int]]:
    """Every set of units that may stay; of units that are alike always the first ones."""
    grouped = {unit for group in alike for unit in group}
    single = [unit for unit in sizes if unit not in grouped]
    for number in range(len(single) + 1):
        for chosen in combinations(single, number):
            for taken in product(*(range(len(group) + 1) for group in alike)):
                first = [unit for group, count in zip(alike, taken, strict=True) for unit in group[:count]]
                yield frozenset((*chosen, *first))


def lower_bounds(sizes: Sizes, schedule: Sequence[int], most: int) -> list[int]:
    """For each number of slots from 1 to `most`: in a stretch of different units, no more than that many are spared."""
    stretches = _stretches(schedule)
    if not stretches:
        return [0] * most
    first = sum(sizes[unit] for unit in stretches[0])
    later = Counter(tuple(sorted((sizes[unit] for unit in stretch), reverse=True)) for stretch in stretches[1:])
    return [
        first + sum(count * sum(stretch[slots:]) for stretch, count in later.items()) for slots in range(1, most + 1)
    ]


def _stretches(schedule: Sequence[int]) -> list[set[int]]:
    """The schedule in parts; each goes on until a unit would repeat."""
    parts: list[set[int]] = []
    for unit in schedule:
        if not parts or unit in parts[-1]:
            parts.append(set())
        parts[-1].add(unit)
    return parts


def copied_bytes(sizes: Sizes, schedule: Sequence[int], slots: int) -> int:
    """The fewest bytes copied with `slots` slots, all empty at first."""
    even = {sizes[unit] for unit in schedule}
    if len(even) == 1:
        return even.pop() * _misses(schedule, slots)
    return _cheapest(sizes, schedule, slots)


def _misses(schedule: Sequence[int], slots: int) -> int:
    """Copies of units of one size: what runs again last gives way."""
    following: list[int] = []
    coming: dict[int, int] = {}
    for position in reversed(range(len(schedule))):
        following.append(coming.get(schedule[position], NEVER))
        coming[schedule[position]] = position
    held: dict[int, int] = {}
    misses = 0
    for unit, runs_again in zip(schedule, reversed(following), strict=True):
        if unit not in held:
            misses += 1
            if len(held) == slots:
                del held[max(held, key=held.__getitem__)]
        held[unit] = runs_again
    return misses


def _cheapest(sizes: Sizes, schedule: Sequence[int], slots: int) -> int:
    """Every way to replace is followed, equal contents merged."""
    costs: dict[frozenset[int], int] = {frozenset(): 0}
    for unit in schedule:
        after: dict[frozenset[int], int] = {}
        for held, cost in costs.items():
            if unit in held:
                kept, cost_after = [held], cost
            else:
                kept = [held - {out} | {unit} for out in held] if len(held) == slots else [held | {unit}]
                cost_after = cost + sizes[unit]
            for content in kept:
                after[content] = min(after.get(content, NEVER), cost_after)
        costs = after
    return min(costs.values())
