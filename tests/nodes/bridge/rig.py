"""ComfyUI's real memory management on a fake device, shared by this pack's handles and by models of ComfyUI's kind.

The device is torch.device("cpu", 0): it differs from "cpu", yet copies to it are real. Its size is a number. What lies
there is what the runtime charges to its simulated device, and what ComfyUI's own models say they have loaded.
"""

from __future__ import annotations

import importlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import comfy.model_management as mm
import comfy.model_patcher
import torch
from comfy_execution.utils import CurrentNodeContext
from torch import Tensor, nn

from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.memory.device import DeviceService, SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.manager import ModelManager
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.policy import VramPolicy

from .launch import PACK, NotInThisVersion

bridge: Any = importlib.import_module(f"{PACK}.nodes.bridge")
process: Any = importlib.import_module(f"{PACK}.nodes.process")
FAKE = torch.device("cpu", 0)
MB = 1 << 20
WIDTH = 512
UNIT_BYTES = 4 * WIDTH * WIDTH
UNITS = 8
SIZE_BYTES = UNITS * UNIT_BYTES


class Layers(nn.Module):
    """(rows, WIDTH) → the same; each layer is a unit of UNIT_BYTES."""

    def __init__(self, seed: int, units: int = UNITS) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(units))
        rng = torch.Generator().manual_seed(seed)
        for layer in self.layers:
            layer.weight.data = torch.randn(WIDTH, WIDTH, generator=rng) / WIDTH**0.5

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def component(name: str, seed: int = 1, units: int = UNITS) -> ModelHandle:
    return ModelHandle(name, Layers(seed, units).eval().requires_grad_(False), "sequence")


def given(rows: int = 3) -> Tensor:
    return torch.linspace(-1, 1, rows * WIDTH).reshape(rows, WIDTH)


class ComfyLayers(nn.Module):
    """The same with ComfyUI's layers, which cast weights that are left in RAM as they run."""

    def __init__(self, seed: int, units: int = UNITS) -> None:
        import comfy.ops

        super().__init__()
        plain = Layers(seed, units)
        self.layers = nn.ModuleList(
            comfy.ops.manual_cast.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float32) for _ in range(units)
        )
        self.load_state_dict(plain.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Rig:
    """A manager whose host is the bridge, on a fake device.

    spare_bytes: what is free beside the least that ComfyUI leaves for inference, its reserve included.
    """

    def __init__(self, spare_bytes: int, policy: dict[str, Any]) -> None:
        self.floor_bytes = mm.minimum_inference_memory()
        self.total_bytes = math.ceil(self.floor_bytes) + spare_bytes
        self.comfys: weakref.WeakSet[Any] = weakref.WeakSet()
        devices = DeviceService({str(FAKE): self.total_bytes}, strict=True)
        host = bridge.ComfyHost()
        self.manager = ModelManager(
            host, devices, lambda: VramPolicy(**{"mode": host.vram_mode() or "normal", **policy})
        )
        self.adopt(self.manager)

    def adopt(self, manager: ModelManager) -> None:
        """Let `manager` be the one whose handles lie on the device."""
        device = manager.devices.get(str(FAKE))
        assert isinstance(device, SimulatedDevice)
        self.manager, self.device = manager, device
        device.before_allocation = self._refuse

    def _refuse(self, size_bytes: int) -> None:
        if size_bytes > self.free_bytes:
            raise NotEnoughMemory(f"{size_bytes:,} bytes are needed, {self.free_bytes:,} are free")

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.device.held_bytes() - sum(model.loaded_size() for model in self.comfys)

    def comfy(self, seed: int = 5, units: int = UNITS) -> Any:
        """A real ModelPatcher; keep it, as ComfyUI's list doesn't."""
        model = comfy.model_patcher.ModelPatcher(ComfyLayers(seed, units), FAKE, torch.device("cpu"))
        self.comfys.add(model)
        return model

    def context(self) -> PhaseContext:
        return PhaseContext("Scenario", self.manager, torch.Generator().manual_seed(0))

    @contextmanager
    def phase(self, *handles: ModelHandle, memory: int = 0) -> Iterator[None]:
        with self.context().use(handles, memory):
            yield

    def run(self, handle: ModelHandle, memory: int = 0) -> Tensor:
        """A whole phase of one handle."""
        with torch.inference_mode(), self.phase(handle, memory=memory):
            output: Tensor = handle.module(given())
        return output

    @property
    def entries(self) -> list[Any]:
        """Models on ComfyUI's list, newest first."""
        return [entry.model for entry in mm.current_loaded_models]

    def check_books(self) -> None:
        """What ComfyUI thinks the handles hold is what is charged to the device, and each has one entry at most."""
        held = [handle for handle in self.manager.room.handles if handle.held_bytes]
        mine = [entry for entry in self.entries if isinstance(entry, bridge.Core)]
        assert self.device.held_bytes() == sum(handle.held_bytes for handle in held)
        assert sum(entry.loaded_size() for entry in mine) == self.device.held_bytes()
        assert all(mine.count(handle.entry) == 1 for handle in held)
        assert not any(entry.is_dead() for entry in mm.current_loaded_models)


@contextmanager
def fake_device(
    spare_bytes: int,
    *,
    vram_state: str = "NORMAL_VRAM",
    smart: bool = True,
    ratio: float = 0.0,
    **policy: Any,
) -> Iterator[Rig]:
    """ComfyUI with a device of so many spare bytes, in a node that runs on this thread. policy: VramPolicy's fields."""
    rig: list[Rig] = []

    def free_memory(dev: torch.device | None = None, torch_free_too: bool = False) -> Any:
        free = rig[0].free_bytes if rig and (dev is None or dev == FAKE) else 1 << 40
        return (free, 0) if torch_free_too else free

    replaced: dict[str, object] = {
        "get_free_memory": free_memory,
        "get_torch_device": lambda: FAKE,
        "get_all_torch_devices": lambda exclude_current=False: [FAKE],
        "is_device_cpu": lambda device: device == torch.device("cpu"),
        "soft_empty_cache": lambda force=False: None,
        "vram_state": mm.VRAMState[vram_state],
        "MIN_WEIGHT_MEMORY_RATIO": ratio,
        "DISABLE_SMART_MEMORY": not smart,
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            if hasattr(mm, name):
                stack.enter_context(patch.object(mm, name, value))
        stack.callback(mm.current_loaded_models.clear)
        stack.enter_context(CurrentNodeContext("scenario", "node"))
        rig.append(Rig(spare_bytes, policy))
        yield rig[0]


@contextmanager
def told_extra() -> Iterator[list[float]]:
    """What ComfyUI allows the adapters to load, as it is told them."""
    extras: list[float] = []
    before = bridge.Core.partially_load

    def partially_load(self: Any, device_to: object, extra_memory: float = 0, **options: Any) -> int:
        extras.append(round(extra_memory, 3))
        loaded: int = before(self, device_to, extra_memory, **options)
        return loaded

    with patch.object(bridge.Core, "partially_load", partially_load):
        yield extras


def calls(owner: Any, name: str) -> Any:
    """Records the arguments of a method's calls."""
    before: Callable[..., object] = getattr(owner, name)
    seen: list[tuple[object, ...]] = []

    def call(self: object, *arguments: object, **named: object) -> object:
        seen.append((*arguments, *named.items()))
        return before(self, *arguments, **named)

    return patch.object(owner, name, call), seen


def needs(condition: bool, what: str) -> None:
    if not condition:
        raise NotInThisVersion(what)


def parameters(function: Callable[..., object]) -> Sequence[str]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]
