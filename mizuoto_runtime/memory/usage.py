"""How often a component's units run: what their marks make expect, then what was seen."""

from __future__ import annotations

from collections.abc import Mapping

from .gates import GatheredUnit, UnitGate
from .plan import UnitCost
from .units import Mark, Unit

EXPECTED_RUNS: Mapping[Mark, float] = {"hot": 16.0, "normal": 4.0, "cold": 1.0, "gather": 0.001}
NOTICEABLE = 0.25


class Usage:
    """passes: how often the busiest unit ran in a phase, once that is known. order: the units as they ran then."""

    def __init__(self) -> None:
        self.passes: float | None = None
        self.order: tuple[str, ...] = ()
        self._runs: dict[str, float] = {}

    def cost(self, unit: Unit) -> UnitCost:
        """The unit for the planner. Runs are relative: the busiest unit's are those of a hot one."""
        runs = self._runs.get(unit.name, EXPECTED_RUNS[unit.mark])
        return UnitCost(unit.name, unit.group.size_bytes, runs, unit.order, not unit.gathers)

    def learn(self, gates: Mapping[str, UnitGate], trace: list[str]) -> bool:
        """Take over what the gates counted since the last time, and the order; whether costs have changed."""
        if not trace:
            return False
        counted = {name: gate for name, gate in gates.items() if not isinstance(gate, GatheredUnit)}
        most = max((gate.runs for gate in counted.values()), default=0)
        if not most:
            return False
        self.passes = float(most)
        changed = not self.order
        for name, gate in counted.items():
            runs = EXPECTED_RUNS["hot"] * gate.runs / most
            gate.runs = 0
            if abs(runs - self._runs.get(name, -1.0)) > NOTICEABLE * runs:
                self._runs[name] = runs
                changed = True
        if changed:
            self.order = tuple(trace)
        trace.clear()
        return changed
