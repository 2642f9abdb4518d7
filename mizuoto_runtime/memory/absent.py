"""What hangs in a module in a weight's place while the weight isn't on a strict device: any use of it is an error.

On the CPU some operations take a meta tensor and return garbage, so the placeholder refuses them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_DESCRIPTIONS = frozenset(
    getattr(Tensor, name).__get__  # the descriptors that torch shows to __torch_function__
    for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "ndim", "is_meta", "grad")
)
_QUESTIONS = frozenset(
    getattr(Tensor, name)
    for name in ("size", "dim", "numel", "stride", "element_size", "is_floating_point", "is_complex", "__repr__")
)


class AbsentWeightError(RuntimeError):
    """A weight was read while it wasn't on the device."""


class AbsentWeight(nn.Parameter):
    """A weight that is somewhere else. It tells its shape and dtype, and nothing more. host: the weight in RAM."""

    host: Tensor

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _DESCRIPTIONS or func in _QUESTIONS:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        raise AbsentWeightError(
            f"{getattr(func, '__name__', func)} reads a weight that isn't on the device: the component is used outside "
            "its phase, or the weight outside its layer's forward (mark it as fixed)"
        )


def absent_weight(host: Tensor) -> Tensor:
    """The placeholder of a parameter or a buffer, on torch's meta device."""
    with torch.inference_mode(False), torch.no_grad():
        shell = AbsentWeight(host.detach().to("meta"), requires_grad=False)
        shell.host = host
        return shell


def in_ram(tensor: Tensor) -> Tensor:
    """What a placeholder stands for; any other tensor itself."""
    return tensor.host if isinstance(tensor, AbsentWeight) else tensor
