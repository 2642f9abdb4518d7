"""A manager on one device of a given size: the CPU playing one, or a real one of which only so much may be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from mizuoto_runtime.memory.device import Device, DeviceService, SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.host import StandaloneHost
from mizuoto_runtime.memory.manager import ModelManager
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.policy import VramPolicy
from mizuoto_runtime.types import Callbacks, Kind

SIMULATED = "cpu"


class Rig:
    """`size_bytes` is what handles may hold on `device_name`, torch's name; "cpu" is the simulated device.

    policy: fields of VramPolicy.
    """

    def __init__(self, size_bytes: int, device_name: str = SIMULATED, *, strict: bool = False, **policy: Any) -> None:
        simulate = {SIMULATED: size_bytes} if device_name == SIMULATED else None
        self.size_bytes = size_bytes
        self.devices = DeviceService(simulate, strict=strict)
        limit_bytes = 0 if simulate else size_bytes + self.devices.get(device_name).held_bytes()
        self.policy = VramPolicy(**{"reserve_bytes": 0, "limit_bytes": limit_bytes, **policy})
        self.manager = ModelManager(StandaloneHost(device_name), self.devices, lambda: self.policy)
        self._held_before = self.device.held_bytes()
        if not simulate:
            torch.cuda.reset_peak_memory_stats(self.device.torch_device)

    @property
    def device(self) -> Device:
        return self.manager.device

    @property
    def peak_bytes(self) -> int:
        """The most that was held since the rig was made; on a real device activations too."""
        if isinstance(self.device, SimulatedDevice):
            return self.device.peak_bytes
        return torch.cuda.max_memory_allocated(self.device.torch_device) - self._held_before

    def context(self, seed: int = 0, check: Callable[[], None] = lambda: None) -> PhaseContext:
        """A new phase."""
        return PhaseContext("Benchmark", self.manager, torch.Generator().manual_seed(seed), Callbacks(check=check))


def component(module: nn.Module, kind: Kind = "sequence", name: str = "component") -> ModelHandle:
    return ModelHandle(name, module.eval().requires_grad_(False), kind)


def room(handles: Sequence[ModelHandle], share: float) -> int:
    """Bytes of the least that the handles work with, and `share` of what is beyond it."""
    least = sum(handle.minimum_bytes(1) for handle in handles)
    most = sum(handle.size_bytes for handle in handles)
    return round(least + share * (most - least))
