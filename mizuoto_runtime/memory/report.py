"""What the memory runtime can say about itself: the policy in force and the devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypedDict

from .device import Device, DeviceService, PlainCpu, SimulatedDevice
from .policy import VramPolicy

if TYPE_CHECKING:
    from .handle import ModelHandle


class DeviceFacts(TypedDict):
    """One device. Figures in bytes; None where a plain CPU has RAM only. error: why the rest couldn't be asked."""

    name: str
    kind: str
    product: str
    total_bytes: int | None
    free_bytes: int | None
    held_bytes: int | None
    error: str


class ComponentFacts(TypedDict):
    """One component's weights, in bytes, which are `size_bytes` together.

    loaded_bytes: on `device`; streamed_bytes: in RAM and copied there when they run; host_bytes: in RAM only, as the
    component is not on a device. Besides: copied_bytes, streamed since it came to the device; host_copy_bytes, loaded
    ones that have a copy in RAM.
    """

    name: str
    kind: str
    device: str
    size_bytes: int
    loaded_bytes: int
    streamed_bytes: int
    host_bytes: int
    host_copy_bytes: int
    copied_bytes: int
    busy: bool


class RamFacts(TypedDict):
    """RAM, in bytes. reserve_bytes: what the policy leaves free."""

    total_bytes: int
    free_bytes: int
    reserve_bytes: int


class PinFacts(TypedDict):
    """Page-locked RAM, in bytes: the most there may be, and what there is. reason: why there is none."""

    budget_bytes: int
    held_bytes: int
    mode: str
    reason: str


class ManagerFacts(TypedDict):
    """What a manager knows.

    device: where phases run; shares_device: an application around keeps its own reserve there; reserve_bytes: left to
    others there; policy: VramPolicy's fields.
    """

    device: str
    shares_device: bool
    policy: dict[str, object]
    reserve_bytes: int
    devices: list[DeviceFacts]
    ram: RamFacts
    pins: PinFacts


def policy_facts(policy: VramPolicy) -> dict[str, object]:
    """A policy's fields in JSON's types."""
    return {**asdict(policy), "pinned_models": sorted(":".join(ref) for ref in policy.pinned_models)}


def device_facts(devices: DeviceService, names: Sequence[str]) -> list[DeviceFacts]:
    """The devices of those names, each once."""
    return [_facts(devices.get(name)) for name in dict.fromkeys(names)]


def component_facts(handle: ModelHandle, device: Device) -> ComponentFacts:
    """A component as it is now, without waiting for one that is being placed. device: where phases run."""
    if device.plain:
        loaded, streamed, host = handle.known_bytes, 0, 0
    else:
        loaded = min(handle.loaded_bytes, handle.known_bytes)
        rest = handle.known_bytes - loaded
        streamed, host = (rest, 0) if handle.residence is not None else (0, rest)
    return ComponentFacts(
        name=handle.name,
        kind=handle.kind,
        device=device.name if device.plain else handle.device_name,
        size_bytes=handle.known_bytes,
        loaded_bytes=loaded,
        streamed_bytes=streamed,
        host_bytes=host,
        host_copy_bytes=0 if device.plain else handle.host_copy_bytes,
        copied_bytes=handle.streamed_bytes,
        busy=handle.busy,
    )


def _facts(device: Device) -> DeviceFacts:
    facts = DeviceFacts(
        name=device.name,
        kind="simulated" if isinstance(device, SimulatedDevice) else device.torch_device.type,
        product="",
        total_bytes=None,
        free_bytes=None,
        held_bytes=None,
        error="",
    )
    if isinstance(device, PlainCpu):
        return facts
    try:
        facts["product"] = _product(device)
        facts["total_bytes"] = device.total_bytes()
        facts["free_bytes"] = device.free_bytes()
        facts["held_bytes"] = device.held_bytes()
    except RuntimeError as error:  # a driver that lists a device it can't open
        facts["error"] = " ".join(str(error).split())
    return facts


def _product(device: Device) -> str:
    import torch

    where = device.torch_device
    if where.type == "cuda":
        return str(torch.cuda.get_device_name(where))
    return str(torch.xpu.get_device_name(where)) if where.type == "xpu" else ""
