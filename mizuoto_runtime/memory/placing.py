"""Puts handles where an allotment wants them: first everything shrinks, then everything grows.

Whatever fails on the way leaves every weight where the books say it is; placing again goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .allotment import Allotment
from .copies import Copies
from .device import Device
from .handle import ModelHandle
from .pinning import Pins
from .residence import Residence
from .streamer import Streamer


@dataclass(frozen=True)
class Placement:
    """How handles are placed.

    keep_host: whether weights are kept in RAM while they are on the device. copies: how slots are filled. Both are
    asked only when something moves. pins: locked RAM.
    """

    device: Device
    keep_host: Callable[[], bool]
    copies: Callable[[], Copies]
    pins: Pins


def place(handles: Sequence[ModelHandle], allotment: Allotment, placement: Placement) -> None:
    """Give `handles` what the allotment says, moving only what has to move. NotEnoughMemory if that fails."""
    for handle, size_bytes in zip(handles, allotment.sizes_bytes, strict=True):
        handle.allotted_bytes = size_bytes
    keep_host = placement.keep_host()
    pairs = [(handle, handle.begin(placement.device, placement.pins)) for handle in handles]
    for (_, residence), resident in zip(pairs, allotment.resident, strict=True):
        residence.let_go(resident)
    partial = [
        residence
        for (_, residence), resident in zip(pairs, allotment.resident, strict=True)
        if len(resident) < len(residence.division.units)
    ]
    _release_slots([residence for _, residence in pairs], partial, allotment)
    for _, residence in pairs:
        residence.place_fixed(keep_host=keep_host or residence in partial)
    _open_slots(partial, allotment, placement)
    for (handle, residence), resident in zip(pairs, allotment.resident, strict=True):
        with handle.lock:
            _settle(handle, residence, resident, keep_host=keep_host or residence in partial)
            handle.allotment = allotment
            handle.gave_up_for = "" if handle.whole else handle.gave_up_for


def _release_slots(residences: Sequence[Residence], partial: Sequence[Residence], allotment: Allotment) -> None:
    """Leave slots that don't serve: of another size, or shared with others than those that stream now."""
    for residence in residences:
        streamer = residence.streamer
        if streamer is None:
            continue
        serves = (
            residence in partial
            and (streamer.slot_bytes, streamer.slots) == (allotment.slot_bytes, allotment.slots)
            and set(streamer.users) == set(partial)
        )
        if not serves:
            for user in list(streamer.users):
                if user in residences:
                    user.stop_streaming()


def _open_slots(partial: Sequence[Residence], allotment: Allotment, placement: Placement) -> None:
    if not allotment.slots or all(residence.streamer is not None for residence in partial):
        return
    streamer = Streamer(placement.device, allotment.slot_bytes, allotment.slots, placement.copies())
    for residence in partial:
        residence.use(streamer)


def _settle(handle: ModelHandle, residence: Residence, resident: frozenset[str], *, keep_host: bool) -> None:
    for unit in residence.division.units:
        if unit.name not in resident:
            residence.stream(unit, ahead=handle.kind == "oneshot")
    for unit in residence.division.units:
        if unit.name in resident:
            residence.make_resident(unit, keep_host=keep_host)
