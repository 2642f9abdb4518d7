"""What the handles of one phase hold together: which are whole, which units of the others stay, what their copies take.

The copies of a phase's partial handles go through the same slots, since one unit runs at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .plan import UnitCost, minimum_bytes, plan
from .policy import VramMode

Limits = tuple[int, ...]


class Member(Protocol):
    """A handle as the arithmetic sees it. version: changes when its costs do."""

    version: int

    @property
    def fixed_bytes(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def order(self) -> tuple[str, ...]: ...

    def costs(self) -> list[UnitCost]: ...


@dataclass(frozen=True, eq=False)
class Allotment:
    """The choice for some handles, in their order.

    resident: names of the units that stay, for each handle; sizes_bytes: with its fixed part. fits: within the budget.
    used_bytes: all of it, slots included.
    enough_bytes: from this budget on there may be a better choice.
    """

    resident: tuple[frozenset[str], ...]
    sizes_bytes: tuple[int, ...]
    slot_bytes: int
    slots: int
    fits: bool
    used_bytes: int
    enough_bytes: int
    versions: tuple[int, ...]
    limits: Limits
    mode: VramMode

    def suits(self, handles: Sequence[Member], budget_bytes: int, limits: Limits, mode: VramMode) -> bool:
        """Whether the same handles would be given the same again."""
        return (
            self.used_bytes <= budget_bytes < self.enough_bytes
            and self.mode == mode
            and self.limits == limits
            and self.versions == tuple(handle.version for handle in handles)
        )


def least_bytes(handles: Sequence[Member], slots: int) -> int:
    """The least with which the handles work together (U6): their fixed parts, and one set of copies for all."""
    units = [unit for handle in handles for unit in handle.costs()]
    return sum(handle.fixed_bytes for handle in handles) + minimum_bytes(units, slots)


def allot(handles: Sequence[Member], budget_bytes: int, slots: int, limits: Limits, mode: VramMode) -> Allotment:
    """Divide `budget_bytes`. limits: the most that each handle may hold; slots: copies held at once.

    Smaller handles whole first, each leaving the others their minimum (Y5); the units of the rest are chosen together,
    so that the fewest bytes are copied.
    """
    whole = _whole(handles, budget_bytes, slots, limits, mode)
    partial = [index for index in range(len(handles)) if index not in whole]
    used = sum(handles[index].size_bytes for index in whole)
    fixed = sum(handles[index].fixed_bytes for index in partial)
    room = min(budget_bytes - used, sum(limits[index] for index in partial)) - fixed
    units = [
        replace(unit, name=f"{index}/{unit.name}", order=index * 1_000_000 + unit.order)
        for index in partial
        for unit in handles[index].costs()
    ]
    if mode == "none":
        room = min(room, minimum_bytes(units, slots))
    order = [f"{index}/{name}" for index in partial for name in handles[index].order]
    chosen = plan(units, room, slots, order)
    resident = tuple(_resident(handle, index, whole, chosen.resident) for index, handle in enumerate(handles))
    kept = sum(unit.size_bytes for unit in units if unit.name in chosen.resident)
    left_out = [unit.size_bytes for unit in units if unit.name not in chosen.resident]
    return Allotment(
        resident=resident,
        sizes_bytes=tuple(
            handle.fixed_bytes + sum(unit.size_bytes for unit in handle.costs() if unit.name in names)
            for handle, names in zip(handles, resident, strict=True)
        ),
        slot_bytes=chosen.slot_bytes,
        slots=chosen.slots,
        fits=chosen.fits,
        used_bytes=used + fixed + kept + chosen.reserve_bytes if chosen.fits else -1 << 62,
        enough_bytes=budget_bytes + min(left_out, default=1 << 62) if chosen.fits else budget_bytes + 1,
        versions=tuple(handle.version for handle in handles),
        limits=limits,
        mode=mode,
    )


def _whole(handles: Sequence[Member], budget_bytes: int, slots: int, limits: Limits, mode: VramMode) -> set[int]:
    """The handles that are whole, by index."""
    allowed = [index for index, handle in enumerate(handles) if handle.size_bytes <= limits[index]]
    if mode == "none":
        return {index for index in allowed if not handles[index].costs()}
    if mode in ("high", "shared"):
        return set(allowed)
    whole: set[int] = set()
    used = 0
    for index in sorted(allowed, key=lambda index: handles[index].size_bytes):
        others = [handle for other, handle in enumerate(handles) if other != index and other not in whole]
        if used + handles[index].size_bytes + least_bytes(others, slots) <= budget_bytes:
            whole.add(index)
            used += handles[index].size_bytes
    return whole


def _resident(handle: Member, index: int, whole: set[int], chosen: frozenset[str]) -> frozenset[str]:
    names = (unit.name for unit in handle.costs())
    if index in whole:
        return frozenset(names)
    return frozenset(name for name in names if f"{index}/{name}" in chosen)
