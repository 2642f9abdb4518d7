"""One component's weights: how they are divided, and what they weigh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..types import Kind
from .calibration import fingerprint
from .plan import UnitCost, minimum_bytes
from .residence import opaque_bytes
from .units import Division, Mark, can_gather, divide
from .usage import EXPECTED_RUNS, Usage

if TYPE_CHECKING:
    from torch import nn

MARKS = ("fixed", *EXPECTED_RUNS)


class Component:
    """One component of a loaded model, wherever it is.

    version: changes with the costs. usage: how often its units run. stays: whether a submodule never leaves the CPU.
    """

    def __init__(
        self, name: str, module: nn.Module, kind: Kind, *, stays: Callable[[nn.Module], bool] = lambda module: False
    ) -> None:
        self.name = name
        self.module = module
        self.kind = kind
        self.version = 0
        self.usage = Usage()
        self.marks: dict[nn.Module, Mark] = {}
        self._stays = stays
        self._division: Division | None = None
        self._costs: list[UnitCost] | None = None
        self._fingerprint: str | None = None
        self._sizes: tuple[int, int] | None = None
        self._known_bytes = 0
        self._owning: frozenset[int] | None = None

    @property
    def division(self) -> Division:
        """The weights divided into what is fixed and what streams."""
        if self._division is None:
            self._division = divide(self.module, self.marks, self._stays)
        return self._division

    @property
    def fixed_bytes(self) -> int:
        """Bytes that are on the device whenever the handle is."""
        return self._measured()[0]

    @property
    def fingerprint(self) -> str:
        """Tells apart components whose layers, shapes or dtypes differ."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.module)
        return self._fingerprint

    @property
    def size_bytes(self) -> int:
        """Bytes of all weights that can be placed."""
        return self._measured()[1]

    @property
    def known_bytes(self) -> int:
        """`size_bytes` as it was when the weights were last divided: for reports, which mustn't divide them."""
        return self._known_bytes

    def _measured(self) -> tuple[int, int]:
        if self._sizes is None:
            division = self.division
            fixed = division.fixed.size_bytes + division.buffers.size_bytes + opaque_bytes(division.opaque)
            self._sizes = fixed, fixed + sum(unit.group.size_bytes for unit in division.units)
            self._known_bytes = self._sizes[1]
        return self._sizes

    def costs(self) -> list[UnitCost]:
        """The units for the planner, with how often each ran in its last request, else what its mark makes expect."""
        units = self.division.units
        if self._costs is None:
            self._costs = [self.usage.cost(unit) for unit in units]
        return self._costs

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the units in the order in which they ran in a phase, once that is known."""
        names = {unit.name for unit in self.division.units}
        return tuple(name for name in self.usage.order if name in names)

    def minimum_bytes(self, slots: int) -> int:
        """The least with which the handle works alone (U6)."""
        return self.fixed_bytes + minimum_bytes(self.costs(), slots)

    def mark(self, module: nn.Module, mark: Mark) -> None:
        """Say how a submodule may be placed (U4).

        `fixed` never streams, `hot` stays first, `cold` streams first; `gather`, for an embedding that is only ever
        indexed: where room is short its rows are looked up in RAM.
        """
        if mark not in MARKS:
            raise ValueError(f"mark {mark!r} is unknown; known: {', '.join(MARKS)}")
        if all(module is not known for known in self.module.modules()):
            raise ValueError(f"{type(module).__name__} isn't a part of component {self.name!r}")
        if mark == "gather" and not can_gather(module):
            raise ValueError(
                f"{type(module).__name__} isn't an nn.Embedding without max_norm; only rows can be gathered"
            )
        self._forget_division()
        self.marks[module] = mark

    def replace(self, module: nn.Module) -> None:
        """Put other weights in the component's place (H4); marks go with the old ones.

        The same module again: its weights were changed in a way that torch doesn't count, as through `weight.data`.
        """
        self._forget_division(rewritten=True)
        if module is not self.module:
            self.module = module
            self.marks.clear()
            self.usage = Usage()

    def renew(self) -> None:
        """Divide the weights anew if the module has gained or lost some; before they are placed anew."""
        if self._division is not None and not self._division.is_current():
            self._forget_division()

    def shares(self, other: Component) -> bool:
        """Whether some module's weights belong to both."""
        return not self._owners().isdisjoint(other._owners())

    def _changed(self) -> None:
        self._costs = self._sizes = self._fingerprint = None
        self.version += 1

    def _owners(self) -> frozenset[int]:
        """The modules that have weights of their own, by identity."""
        if self._owning is None:
            self._owning = frozenset(id(part) for part in self.module.modules() if part._parameters or part._buffers)
        return self._owning

    def _forget_division(self, *, rewritten: bool = False) -> None:
        """Hang every weight where the module had it, also where placeholders hung; divided anew when next needed.

        rewritten: the weights have other values now, for whoever keeps copies.
        """
        if self._division is not None:
            for group in self._division.groups:
                group.restore()
        self._division = self._owning = None
        self._changed()


def slots_of(handles: Sequence[Component], side_streams: int) -> int:
    """Copies held at once: one where nothing is copied ahead (S4)."""
    return side_streams + 1 if any(handle.kind == "oneshot" for handle in handles) else 1
