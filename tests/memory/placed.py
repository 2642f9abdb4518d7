"""Places handles without a manager."""

from __future__ import annotations

from mizuoto_runtime.memory.allotment import allot
from mizuoto_runtime.memory.copies import CopiesAtOnce
from mizuoto_runtime.memory.device import Device
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.locks import NoLocks
from mizuoto_runtime.memory.pinning import Pins
from mizuoto_runtime.memory.placing import Placement, place


def place_within(
    budget_bytes: int,
    device: Device,
    *handles: ModelHandle,
    slots: int = 1,
    keep_host: bool = True,
    pins: Pins | None = None,
) -> None:
    """Give the handles what is best within `budget_bytes`."""
    for handle in handles:
        handle.renew()
        handle.learn()
    limits = tuple(handle.limit_bytes(budget_bytes) for handle in handles)
    allotment = allot(handles, budget_bytes, slots, limits, "normal")
    place(
        handles,
        allotment,
        Placement(device, lambda: keep_host, CopiesAtOnce, pins or Pins(NoLocks("tests"), lambda: 0)),
    )
