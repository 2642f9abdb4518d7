"""What an engine's `load` function gets to register its components with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .engines.spec import EngineSpec
from .memory.handle import ModelHandle

if TYPE_CHECKING:
    from torch import nn


@dataclass
class Loader:
    """Makes a handle of each component that the engine declares."""

    spec: EngineSpec
    handles: list[ModelHandle] = field(default_factory=list)

    def handle(self, component: str, module: nn.Module) -> ModelHandle:
        """The handle of a declared component, whose weights are `module`'s, in evaluation mode and on the CPU."""
        declared = self.spec.component(component)
        module.eval().requires_grad_(False)
        handle = ModelHandle(declared.name, module, declared.kind)
        self.handles.append(handle)
        return handle


@dataclass(frozen=True)
class LoadedModel:
    """A model that is open: whatever the engine's `load` returned, and all its handles."""

    model: object
    handles: list[ModelHandle]
