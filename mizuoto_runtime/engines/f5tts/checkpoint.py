"""A checkpoint's tensors, of safetensors or of `torch.save`, and modules filled with them, strictly."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ModelFileError
from ...weights.checkpoint import computable, listed, opened_safetensors
from ...weights.pages import converted
from .config import OLD_MEL_BUFFERS

EMA = "ema_model."
EMA_STATE, PLAIN_STATE = "ema_model_state_dict", "model_state_dict"
COUNTERS = ("initted", "step")
DROPPED = (*COUNTERS, *OLD_MEL_BUFFERS)


class Tensors:
    """A checkpoint's tensors, read when they are asked for. shapes: by name, prefixes of training removed."""

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]], get: Callable[[str], Tensor]) -> None:
        self.path = path
        self.shapes = shapes
        self.get = get

    def dtype(self, name: str) -> torch.dtype:
        """As stored, see `computable`; float32 if there is no such tensor, as what is missing is said later."""
        return computable(self.get(name).dtype, self.path) if name in self.shapes else torch.float32


@contextmanager
def opened(path: Path) -> Iterator[Tensors]:
    """The checkpoint at `path`. ModelFileError for a damaged file, or one that holds more than tensors."""
    if path.suffix != ".safetensors":
        yield _unpickled(path)
        return
    with opened_safetensors(path) as file:
        names = {_plain(name): name for name in file.keys()}  # noqa: SIM118
        shapes = {name: tuple(file.get_slice(stored).get_shape()) for name, stored in names.items()}
        yield Tensors(path, _kept(shapes), lambda name: file.get_tensor(names[name]))


def _unpickled(path: Path) -> Tensors:
    """A file of `torch.save`, which may hold nothing but tensors and plain values."""
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelFileError(f"{path}: damaged, or not a file of weights ({reason}); download it again") from error
    for key in (EMA_STATE, PLAIN_STATE):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not content:
        raise ModelFileError(f"{path}: holds no weights by name; is it another model's?")
    tensors = {_plain(str(name)): value for name, value in content.items()}
    shapes = {name: tuple(value.shape) for name, value in tensors.items() if isinstance(value, Tensor)}
    if strange := [name for name in _kept(shapes) if not _is_plain(tensors[name])]:
        raise ModelFileError(f"{path}: {listed(strange)} are no plain tensors; download the file again")
    return Tensors(path, _kept(shapes), lambda name: tensors[name])


def _is_plain(tensor: Tensor) -> bool:
    """Whether it holds each of its values, and so is no larger than the file says."""
    return (
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and tensor.is_contiguous()
    )


def _plain(name: str) -> str:
    return name.removeprefix(EMA)


def _kept(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Without what isn't a model's weight; the old buffers stay, since they tell how old the model is."""
    return {name: shape for name, shape in shapes.items() if name not in COUNTERS}


def fill(
    module: nn.Module,
    tensors: Tensors,
    rename: Callable[[str], str | None],
    dtype: torch.dtype,
    described_by: str,
) -> None:
    """Give `module`, built on the meta device, all of the tensors, each renamed, in `dtype`; None drops one.

    ModelFileError names what is missing, unexpected or of another shape. described_by: the file that gave the sizes.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    targets = {name: rename(name) for name in tensors.shapes if name not in DROPPED}
    renamed = {target: name for name, target in targets.items() if target is not None}
    unexpected = [name for name, target in targets.items() if target is not None and target not in wanted]
    if unexpected:
        raise ModelFileError(f"{tensors.path}: unexpected weights: {listed(unexpected)}; it is another model's")
    missing = [f"{name} of {type(module).__name__}" for name in wanted.keys() - renamed.keys()]
    if missing:
        raise ModelFileError(
            f"{tensors.path}: {len(missing)} weights are missing: {listed(missing)}; download the file again"
        )
    for target, name in renamed.items():
        if tensors.shapes[name] != wanted[target]:
            raise ModelFileError(
                f"{tensors.path}: the weight {name!r} is {list(tensors.shapes[name])}; by {described_by} it is "
                f"{list(wanted[target])}. They belong to different models"
            )
    found = {target: converted(_floating(tensors, name), dtype) for target, name in renamed.items()}
    module.load_state_dict(found, strict=True, assign=True)
    module.requires_grad_(False).eval()


def _floating(tensors: Tensors, name: str) -> Tensor:
    tensor = tensors.get(name)
    if not tensor.is_floating_point():
        raise ModelFileError(f"{tensors.path}: the weight {name!r} is {tensor.dtype}; it must be floating-point")
    return tensor
