"""Other libraries' offloading, with the CPU playing the device.

Both libraries move a weight with `tensor.to(device)`, which copies nothing where the device is the CPU itself. Here
that one step is made a copy, of each weight into fresh memory, as a device needs one; hooks and bookkeeping stay
theirs. Neither is made to copy anything back.

Beside them the least that copying each layer's weights can cost, by hand. Where the CPU is the device, a layer that
runs right after its own copy finds it in the cache, which a unit of several layers doesn't; a real device has no such
gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class Unavailable(Exception):
    """Why an offloader can't be measured here."""


@dataclass
class Offloading:
    """what: the library, and which of its steps was made a copy. copied_bytes: so far."""

    what: str
    copied_bytes: int = 0

    def copy(self, tensor: Tensor) -> Tensor:
        self.copied_bytes += tensor.nbytes
        return tensor.clone()


class _Copied(dict[str, Tensor]):
    """Weights by name; each look-up gives a copy on the device that the CPU plays."""

    offloading: Offloading

    def __getitem__(self, name: str) -> Tensor:
        return self.offloading.copy(super().__getitem__(name))


@contextmanager
def accelerate(model: nn.Module) -> Iterator[Offloading]:
    """accelerate's `cpu_offload`: a hook on each module that has weights, copies from its map of weights."""
    try:
        from accelerate import __version__, cpu_offload
    except ImportError as error:
        raise Unavailable(f"accelerate isn't installed ({error})") from error
    weights = _Copied({name: tensor.detach() for name, tensor in model.state_dict().items()})
    weights.offloading = Offloading(f"accelerate {__version__}, its map of weights gives copies")
    cpu_offload(model, execution_device=torch.device("cpu"), state_dict=weights)
    yield weights.offloading


@contextmanager
def _diffusers(model: nn.Module, level: str) -> Iterator[Offloading]:
    """diffusers' group offloading without streams: children of lists as groups of one, or every layer."""
    try:
        from diffusers import __version__
        from diffusers.hooks import apply_group_offloading, group_offloading
    except ImportError as error:
        raise Unavailable(f"diffusers isn't installed ({error})") from error
    group = group_offloading.ModuleGroup
    if not hasattr(group, "_transfer_tensor_to_device"):
        raise Unavailable(f"diffusers {__version__} copies elsewhere than 0.42, so its copies can't be made real here")
    offloading = Offloading(f"diffusers {__version__}, its transfer to the device copies, none back")

    def transfer(self: Any, tensor: Tensor, source: Tensor, default_stream: Any) -> None:
        tensor.data = offloading.copy(source)

    original = group._transfer_tensor_to_device
    cpu = torch.device("cpu")
    blocks = {"num_blocks_per_group": 1} if level == "block_level" else {}
    apply_group_offloading(model, onload_device=cpu, offload_device=cpu, offload_type=level, **blocks)
    group._transfer_tensor_to_device = transfer
    try:
        yield offloading
    finally:
        group._transfer_tensor_to_device = original


def block_level(model: nn.Module) -> AbstractContextManager[Offloading]:
    return _diffusers(model, "block_level")


def leaf_level(model: nn.Module) -> AbstractContextManager[Offloading]:
    return _diffusers(model, "leaf_level")


@contextmanager
def by_hand(model: nn.Module) -> Iterator[Offloading]:
    """Each linear layer's weight is copied into one block, that of all of them, when the layer is called."""
    layers = [part for part in model.modules() if isinstance(part, nn.Linear)]
    slot = torch.empty(max(layer.weight.numel() for layer in layers))
    offloading = Offloading("one preallocated block")

    def copying(host: Tensor) -> Callable[[nn.Module, Any], None]:
        view = slot[: host.numel()].view(host.shape)

        def hook(layer: nn.Module, arguments: Any) -> None:
            offloading.copied_bytes += host.nbytes
            layer.weight.data = view.copy_(host)

        return hook

    for layer in layers:
        layer.register_forward_pre_hook(copying(layer.weight.data))
    yield offloading


OTHERS: Mapping[str, Callable[[nn.Module], AbstractContextManager[Offloading]]] = {
    "accelerate cpu_offload": accelerate,
    "diffusers block_level": block_level,
    "diffusers leaf_level": leaf_level,
    "by hand, layer by layer": by_hand,
}
