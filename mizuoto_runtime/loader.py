"""What an engine's `load` function gets to register its components with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .engines.spec import EngineSpec
from .memory.device import DeviceService
from .memory.handle import ModelHandle
from .types import ModelRef
from .weights.alignment import align_small_weights
from .weights.pages import give_back_pages

if TYPE_CHECKING:
    from torch import nn


@dataclass
class Loader:
    """Makes a handle of each component of `model` that the engine declares.

    devices: `devices.pin_to_cpu(module)` keeps a part of a component off every device; before its handle is made.
    device: where the model will run, as torch names it. plain: whether that is the CPU itself, where weights stay, and
    not one that plays a device. dtype: what the user wants the model to compute in, "" for as stored.
    """

    spec: EngineSpec
    model: ModelRef
    devices: DeviceService
    device: str = "cpu"
    plain: bool = False
    dtype: str = ""
    handles: list[ModelHandle] = field(default_factory=list)

    def handle(self, component: str, module: nn.Module, *, many_rows: Iterable[nn.Module] = ()) -> ModelHandle:
        """The handle of a declared component, whose weights are `module`'s, in evaluation mode and on the CPU.

        many_rows: parts of it whose linear layers hardly ever get a single row; on a CPU they may be faster then.
        """
        declared = self.spec.component(component)
        module.eval().requires_grad_(False)
        align_small_weights(module)
        if self.plain:
            self._pack(module, many_rows)
        handle = ModelHandle(declared.name, module, declared.kind, stays=self.devices.stays_on_cpu)
        handle.model = self.model
        self.handles.append(handle)
        return handle

    @staticmethod
    def _pack(module: nn.Module, many_rows: Iterable[nn.Module]) -> None:
        """Give weights the order in which the CPU multiplies; what they are copied from needn't stay in RAM."""
        from .nn.linear import pack

        pack(module, lambda weight: give_back_pages([weight]), many_rows=many_rows)


@dataclass
class LoadedModel:
    """A model that is open: which, whatever the engine's `load` returned, and all its handles.

    last_used_s: the monotonic clock's time.
    """

    ref: ModelRef
    model: object
    handles: list[ModelHandle]
    last_used_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _runs: int = 0

    @property
    def id(self) -> str:
        return ":".join(self.ref)

    @property
    def busy(self) -> bool:
        """Whether a phase of a request runs on the model now, or uses one of the handles."""
        return self._runs > 0 or any(handle.busy for handle in self.handles)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The block runs a phase on the model."""
        with self._lock:
            self._runs += 1
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
            self.last_used_s = time.monotonic()
