"""A handle on one component's weights: where they are, how large they are, how they may be placed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from ..types import Kind

if TYPE_CHECKING:
    from torch import Tensor, nn

Mark = Literal["fixed", "hot", "normal", "cold"]


def tensors_of(module: nn.Module) -> list[Tensor]:
    """Each distinct parameter and buffer of `module` once, shared ones too."""
    found: dict[int, Tensor] = {id(tensor): tensor for tensor in module.parameters()}
    found.update({id(tensor): tensor for tensor in module.buffers()})
    return list(found.values())


class ModelHandle:
    """One component of a loaded model. Its weights are on `offload_device` ("cpu") until a phase places them."""

    def __init__(self, name: str, module: nn.Module, kind: Kind) -> None:
        self.name = name
        self.module = module
        self.kind = kind
        self.device = "cpu"
        self.marks: dict[nn.Module, Mark] = {}
        self.size_bytes = sum(tensor.nbytes for tensor in tensors_of(module))
        self._users = 0
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a phase is using the handle now."""
        return self._users > 0

    def loaded_bytes_on(self, device: str) -> int:
        """Bytes of weights that are on `device` now."""
        return self.size_bytes if self.device == device else 0

    def mark(self, module: nn.Module, mark: Mark) -> None:
        """Say how a submodule may be placed: `fixed` never streams, `hot` stays first, `cold` streams first."""
        if all(module is not known for known in self.module.modules()):
            raise ValueError(f"{type(module).__name__} isn't a part of component {self.name!r}")
        self.marks[module] = mark

    def replace(self, module: nn.Module) -> None:
        """Put other weights in the component's place; the handle must be idle."""
        if self.busy:
            raise RuntimeError(f"component {self.name!r} is in use; replace its weights between phases")
        self.module = module.eval().requires_grad_(False).to(self.device)
        self.marks.clear()
        self.size_bytes = sum(tensor.nbytes for tensor in tensors_of(module))

    def load(self, device: str) -> None:
        """Place the whole component on `device`."""
        with self._lock:
            self._move(device)

    def _move(self, device: str) -> None:
        if device != self.device:
            self.module.to(device)
            self.device = device

    def unload(self) -> None:
        """Bring the component back to RAM; nothing happens while a phase uses it."""
        with self._lock:
            if not self.busy:
                self._move("cpu")

    def enter(self) -> None:
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
