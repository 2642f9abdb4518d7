"""A checkpoint of training or of its weights alone, and modules filled with its tensors, strictly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from ...errors import ModelFileError
from ...weights import stored
from ...weights.checkpoint import Rename, computable, listed, renamed
from ...weights.pages import converted
from ...weights.stored import Stored
from .config import OLD_MEL_BUFFERS

EMA = "ema_model."
EMA_STATE, PLAIN_STATE = "ema_model_state_dict", "model_state_dict"
COUNTERS = ("initted", "step")


@contextmanager
def opened(path: Path) -> Iterator[Stored]:
    """The checkpoint at `path`, without its prefixes and counters of training. Raises as `stored.opened`.

    The old buffers stay, since they tell how old the model is.
    """
    with stored.opened(path, EMA_STATE, PLAIN_STATE) as file:
        yield file.renamed(_plain)


def _plain(name: str) -> str | None:
    name = name.removeprefix(EMA)
    return None if name in COUNTERS else name


def stored_dtype(tensors: Stored, name: str) -> torch.dtype:
    """Of a tensor, see `computable`; float32 if there is no such tensor, as what is missing is said later."""
    return computable(tensors.get(name).dtype, tensors.path) if name in tensors.shapes else torch.float32


def fill(
    module: nn.Module,
    tensors: Stored,
    rename: Rename,
    dtype: torch.dtype,
    described_by: str,
) -> None:
    """Give `module`, built on the meta device, all of the tensors, each renamed, in `dtype`; None drops one.

    ModelFileError names what is missing, unexpected or of another shape. described_by: the file that gave the sizes.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    names = renamed([name for name in tensors.shapes if name not in OLD_MEL_BUFFERS], rename, tensors.path)
    unexpected = [name for target, name in names.items() if target not in wanted]
    if unexpected:
        raise ModelFileError(f"{tensors.path}: unexpected weights: {listed(unexpected)}; it is another model's")
    missing = [f"{name} of {type(module).__name__}" for name in wanted.keys() - names.keys()]
    if missing:
        raise ModelFileError(
            f"{tensors.path}: {len(missing)} weights are missing: {listed(missing)}; download the file again"
        )
    for target, name in names.items():
        if tensors.shapes[name] != wanted[target]:
            raise ModelFileError(
                f"{tensors.path}: the weight {name!r} is {list(tensors.shapes[name])}; by {described_by} it is "
                f"{list(wanted[target])}. They belong to different models"
            )
    found = {target: converted(tensors.floating(name), dtype) for target, name in names.items()}
    module.load_state_dict(found, strict=True, assign=True)
    module.requires_grad_(False).eval()
