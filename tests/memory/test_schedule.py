"""Plans that know the order: never worse than those that only know counts, and the best where units are few."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mizuoto_runtime.memory.plan import UnitCost, minimum_bytes, plan
from mizuoto_runtime.memory.schedule import Schedule

NAMES = "abcdef"
CASES = st.tuples(
    st.lists(st.sampled_from([10, 10, 25, 60]), min_size=2, max_size=6),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=30),
    st.floats(0, 1),
)


@settings(max_examples=200, deadline=None)
@given(case=CASES)
def test_the_order_never_makes_a_plan_worse_and_it_fits(case: tuple[list[int], list[str], float]) -> None:
    sizes, ran, share = case
    order = [name for name in ran if name in NAMES[: len(sizes)]]
    units = [
        UnitCost(name, size, order.count(name), index)
        for index, (name, size) in enumerate(zip(NAMES, sizes, strict=False))
    ]
    least = minimum_bytes(units)
    budget = round(least + share * (sum(sizes) - least))
    schedule = Schedule(order, {unit.name: unit.size_bytes for unit in units})
    blind, seeing = plan(units, budget), plan(units, budget, order=order)
    kept = sum(unit.size_bytes for unit in units if unit.name in seeing.resident)
    assert kept + seeing.reserve_bytes <= budget
    left = [unit.size_bytes for unit in units if unit.name not in seeing.resident]
    assert max(left, default=0) <= seeing.slot_bytes
    copied = [schedule.copied_bytes(found.resident, max(found.slots, 1)) for found in (blind, seeing)]
    assert copied[1] <= copied[0]


@pytest.mark.parametrize("short", [20, 90, 160, 230, 300])
def test_run_once_parts_and_layers_copy_the_fewest_bytes(short: int) -> None:
    encoders = [UnitCost(f"encoder.{index}", 40, 1, index) for index in range(4)]
    layers = [UnitCost(f"layer.{index}", 75, 20, 4 + index) for index in range(6)]
    units = [*encoders, *layers]
    order = [unit.name for unit in encoders] + [unit.name for unit in layers] * 20
    budget = sum(unit.size_bytes for unit in units) - short
    found = plan(units, budget, order=order)
    schedule = Schedule(order, {unit.name: unit.size_bytes for unit in units})
    fewest = min(
        schedule.copied_bytes(frozenset(kept), 1)
        for count in range(len(units))
        for kept in itertools.combinations([unit.name for unit in units], count)
        if fits(units, kept, budget)
    )
    assert schedule.copied_bytes(found.resident, found.slots) == fewest


def fits(units: list[UnitCost], kept: tuple[str, ...], budget: int) -> bool:
    left = [unit.size_bytes for unit in units if unit.name not in kept]
    return sum(unit.size_bytes for unit in units if unit.name in kept) + max(left, default=0) <= budget
