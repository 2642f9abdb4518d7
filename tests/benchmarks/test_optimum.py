"""The benchmark's optimum is one: by hand, and against every way to run tiny cases."""

from __future__ import annotations

import random
from itertools import chain, combinations

import pytest

from benchmarks.sections.optimum import copied_bytes, fewest_bytes, floor_bytes, lower_bounds


def by_trying(sizes: list[int], schedule: list[int], budget: int) -> int | None:
    """Every set that stays, every number of slots, every unit that may be dropped, without any shortcut."""
    units = range(len(sizes))
    costs = []
    for resident in chain.from_iterable(combinations(units, count) for count in range(len(sizes) + 1)):
        room = budget - sum(sizes[unit] for unit in resident)
        streamed = [unit for unit in units if unit not in resident]
        slot = max((sizes[unit] for unit in streamed), default=0)
        even = len({sizes[unit] for unit in streamed}) == 1
        for slots in range(1, 5 if even else 4) if streamed else (0,):
            if room >= slots * slot:
                costs.append(tried([unit for unit in schedule if unit in streamed], sizes, slots, ()))
    return min(costs, default=None)


def tried(schedule: list[int], sizes: list[int], slots: int, held: tuple[int, ...]) -> int:
    if not schedule:
        return 0
    unit, *rest = schedule
    if unit in held:
        return tried(rest, sizes, slots, held)
    options = [held] if len(held) < slots else [tuple(other for other in held if other != out) for out in held]
    return sizes[unit] + min(tried(rest, sizes, slots, (*kept, unit)) for kept in options)


def test_by_hand() -> None:
    sizes = dict.fromkeys(range(4), 10)
    assert fewest_bytes(sizes, [0, 1, 2, 3] * 5, 40) == 0
    assert fewest_bytes(sizes, [0, 1, 2, 3] * 5, 30, max_slots=1) == 2 * 10 * 5
    assert fewest_bytes(sizes, [0, 1, 2, 3] * 5, 30) == 90, "the unit that just ran gives its slot to the next"
    assert floor_bytes(sizes, [0, 1, 2, 3] * 5, 30) == 4 * 10
    assert fewest_bytes(sizes, [0, 1, 2, 3] * 5, 10) == 4 * 10 * 5
    assert fewest_bytes(sizes, [0, *[1, 2, 3] * 5], 30) == 2 * 10, "the slot that the first had serves another for good"
    assert copied_bytes(sizes, [0, 0, 1, 1, 0], 1) == 30
    with pytest.raises(ValueError, match="no choice fits"):
        fewest_bytes(sizes, [0], 9)


@pytest.mark.parametrize("seed", range(40))
def test_against_every_way(seed: int) -> None:
    pick = random.Random(seed)
    sizes = [pick.choice((1, 2, 3, 5, 8)) for _ in range(pick.randint(2, 4))]
    schedule = [pick.randrange(len(sizes)) for _ in range(pick.randint(1, 8))]
    for budget in range(max(sizes), sum(sizes)):
        assert fewest_bytes(dict(enumerate(sizes)), schedule, budget) == by_trying(sizes, schedule, budget)
    numbered = dict(enumerate(sizes))
    for slots, bound in enumerate(lower_bounds(numbered, schedule, 3), 1):
        assert bound <= copied_bytes(numbered, schedule, slots)


def test_units_that_are_alike_are_interchangeable() -> None:
    sizes = {0: 7, 1: 3, 2: 3, 3: 3, 4: 4}
    schedule = [0, 4, *[1, 2, 3] * 4]
    for budget in range(7, 20):
        assert fewest_bytes(sizes, schedule, budget, [(1, 2, 3)]) == fewest_bytes(sizes, schedule, budget)
