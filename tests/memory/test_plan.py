"""The plan is the best there is: compared with every possible choice, and without torch."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from mizuoto_runtime.memory.plan import Plan, UnitCost, minimum_bytes, plan

SIZES = st.sampled_from([75, 300]) | st.integers(1, 1000)
KINDS = st.tuples(SIZES, st.sampled_from([1, 1, 10, 100]), st.sampled_from([True, True, True, False]))
UNITS = st.lists(KINDS, min_size=1, max_size=8).map(
    lambda kinds: [UnitCost(str(index), size, runs, index, slot) for index, (size, runs, slot) in enumerate(kinds)]
)


def fewest_bytes(units: Sequence[UnitCost], budget: int, slots: int) -> float | None:
    """The fewest bytes that any choice copies, None if none fits."""
    found: list[float] = []
    for count in range(len(units) + 1):
        for kept in itertools.combinations(units, count):
            streamed = [unit for unit in units if unit not in kept]
            copied = [unit for unit in streamed if unit.needs_slot]
            reserve = min(slots, len(copied)) * max((unit.size_bytes for unit in copied), default=0)
            if sum(unit.size_bytes for unit in kept) + reserve <= budget:
                found.append(sum(unit.runs * unit.size_bytes for unit in streamed))
    return min(found, default=None)


@settings(max_examples=150, deadline=None)
@given(units=UNITS, share=st.floats(0, 1.05), slots=st.integers(1, 3))
def test_no_choice_copies_fewer_bytes(units: list[UnitCost], share: float, slots: int) -> None:
    budget = int(share * sum(unit.size_bytes for unit in units))
    best = fewest_bytes(units, budget, slots)
    found = plan(units, budget, slots)
    assert found.fits is (best is not None)
    assert found.fits is (budget >= minimum_bytes(units, slots))
    if best is not None:
        kept = sum(unit.size_bytes for unit in units if unit.name in found.resident)
        assert kept + found.reserve_bytes <= budget
        copied = sum(unit.runs * unit.size_bytes for unit in units if unit.name not in found.resident)
        assert copied <= 1.02 * best


def test_trap_01_run_once_encoders_stream_before_layers() -> None:
    encoders = [UnitCost(f"encoder.{index}", 40, 1, index) for index in range(32)]
    layers = [UnitCost(f"layer.{index}", 75, 200, 32 + index) for index in range(24)]
    found = plan([*encoders, *layers], 1800 + 40)
    assert {unit.name for unit in layers} <= found.resident


def test_equal_units_stay_from_the_first_on() -> None:
    found = plan([UnitCost(str(index), 10, 1, index) for index in range(9)], 50)
    assert found.resident == {"0", "1", "2", "3"}


def test_nothing_to_stream_needs_no_room() -> None:
    assert plan([], 0).fits
    assert plan([], -1) == Plan(frozenset(), 0, 0, False)


def test_planning_needs_no_torch() -> None:
    code = "import sys, mizuoto_runtime.memory.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
