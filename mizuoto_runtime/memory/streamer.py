"""Streams units: their weights stay in RAM and are copied to the device when they run.

A few slots, blocks of the same size, hold the copies. A unit whose copy is still in a slot is not copied again. Where
copies run beside the computation, the units that followed last time are copied ahead; a wrong guess costs time only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import current
from .copies import Copies
from .device import Device

if TYPE_CHECKING:
    from .gates import StreamedUnit
    from .residence import Residence


class Slot:
    """One block for copies. unit: whose copy it holds."""

    __slots__ = ("__weakref__", "block", "copy", "places", "unit", "version")

    def __init__(self, block: Tensor) -> None:
        self.block = block
        self.unit: StreamedUnit | None = None
        self.version = -1
        self.copy: Any = None
        self.places: dict[StreamedUnit, tuple[Tensor, list[tuple[Any, Any, Tensor]]]] = {}

    def prepared(self, unit: StreamedUnit) -> tuple[Tensor, list[tuple[Any, Any, Tensor]]]:
        """The part of the block that the unit's copy takes, and what hangs where while the unit runs."""
        if unit not in self.places:
            with torch.inference_mode(False):
                part = self.block[: unit.group.size_bytes]
                self.places[unit] = part, unit.group.views(part)
        return self.places[unit]


class Streamer:
    """The slots that some handles of one device stream through, and the order in which their units ran last time.

    users: those that stream through it; the first one's books hold the slots.
    """

    def __init__(self, device: Device, slot_bytes: int, slots: int, copies: Copies) -> None:
        self.lock = threading.RLock()
        self.device = device
        self.slot_bytes = slot_bytes
        self.slots = slots
        self.users: list[Residence] = []
        self._copies = copies
        self._slots = [Slot(device.allocate(slot_bytes)) for _ in range(slots)]
        self._next: dict[StreamedUnit, StreamedUnit] = {}
        self._last: StreamedUnit | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all slots."""
        return self.slot_bytes * len(self._slots)

    def forget(self, units: Iterable[StreamedUnit]) -> None:
        """Drop the copies of `units`, which won't come here again."""
        with self.lock:
            for unit in units:
                if unit.slot is not None:
                    self._vacate(unit.slot)
                for slot in self._slots:
                    slot.places.pop(unit, None)
            self._next.clear()
            self._last = None

    def leave(self, user: Residence) -> int:
        """One user less; the last one gives the slots back. Returns the bytes given back."""
        with self.lock:
            self.users.remove(user)
            if self.users:
                return 0
            freed = self.size_bytes
            self.drop()
            self._slots.clear()
            return freed

    def ready(self, unit: StreamedUnit) -> list[tuple[Any, Any, Tensor]]:
        """Where the unit's copy hangs; it is in a slot by then, copied now if it wasn't."""
        unit.runs += 1
        slot = unit.slot
        if slot is None or slot.version != unit.host._version:
            slot = self._free_slot(unit)
            self._fill(slot, unit)
        if slot.copy is not None:
            self._copies.wait(slot.copy)
            slot.copy = None
        self._learn(unit)
        if self._copies.ahead and unit.ahead:
            self._prefetch(unit)
        return slot.prepared(unit)[1]

    def left(self, unit: StreamedUnit) -> None:
        """The unit's call has ended."""
        if self._copies.ahead and unit.slot is not None:
            self._copies.used(unit.slot)

    def drop(self) -> None:
        """Forget all copies; the slots stay."""
        with self.lock:
            for slot in self._slots:
                self._vacate(slot)

    def _fill(self, slot: Slot, unit: StreamedUnit) -> None:
        current.check()
        self._clear(slot)
        part, _ = slot.prepared(unit)
        self._copies.now(part, unit.host)
        self._hold(slot, unit)

    def _hold(self, slot: Slot, unit: StreamedUnit) -> None:
        slot.unit, unit.slot = unit, slot
        slot.version = unit.host._version
        unit.count(unit.group.size_bytes)
        self._slots.remove(slot)
        self._slots.append(slot)

    def _clear(self, slot: Slot) -> None:
        """Make a slot ready for another copy, once one into it that nobody asked for is done."""
        self._vacate(slot)
        if slot.copy is not None:
            self._copies.wait(slot.copy)
            self._copies.used(slot)
            slot.copy = None

    def _vacate(self, slot: Slot) -> None:
        if slot.unit is not None:
            slot.unit.slot = None
            slot.unit = None

    def _free_slot(self, unit: StreamedUnit) -> Slot:
        """The slot to copy into: the unit's own outdated one, else an empty one, else the one filled longest ago."""
        if unit.slot is not None:
            return unit.slot
        idle = [slot for slot in self._slots if slot.unit is None or not slot.unit.depth]
        if not idle:
            raise RuntimeError("every slot is in use: units are nested deeper than the plan has slots")
        return next((slot for slot in idle if slot.unit is None), idle[0])

    def _learn(self, unit: StreamedUnit) -> None:
        if self._last is not None and self._last is not unit:
            self._next[self._last] = unit
        self._last = unit

    def _prefetch(self, unit: StreamedUnit) -> None:
        ahead = self._followers(unit)
        for following in ahead:
            if following.slot is not None or not following.ahead:
                continue
            idle = [slot for slot in self._slots if slot.unit is None or self._spare(slot.unit, unit, ahead)]
            if not idle:
                return
            slot = next((slot for slot in idle if slot.unit is None), idle[0])
            current.check()
            self._clear(slot)
            part, _ = slot.prepared(following)
            slot.copy = self._copies.later(part, following.host, slot)
            self._hold(slot, following)

    @staticmethod
    def _spare(held: StreamedUnit, running: StreamedUnit, ahead: Sequence[StreamedUnit]) -> bool:
        return held is not running and not held.depth and held not in ahead

    def _followers(self, unit: StreamedUnit) -> list[StreamedUnit]:
        found: list[StreamedUnit] = []
        following = self._next.get(unit)
        while following not in (None, unit, *found) and len(found) < len(self._slots) - 1:
            assert following is not None
            found.append(following)
            following = self._next.get(following)
        return found
