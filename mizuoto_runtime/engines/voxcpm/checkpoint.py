"""A checkpoint's tensors, of safetensors or of `torch.save`: mapped, and nothing but tensors."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import ModelFileError, ModelNotFound
from ...weights.checkpoint import listed, opened_safetensors

STATE = "state_dict"


@dataclass(frozen=True)
class Stored:
    """A file's tensors, read when they are asked for by name. shapes: of all of them."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    get: Callable[[str], Tensor]


@contextmanager
def opened(folder: Path, *names: str) -> Iterator[Stored]:
    """The first of these files that is in `folder`. ModelNotFound, or ModelFileError for a damaged one."""
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise ModelNotFound(f"{folder}: has neither {' nor '.join(names)}; download the model again")
    if path.suffix != ".safetensors":
        yield _unpickled(path)
        return
    with opened_safetensors(path) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        yield Stored(path, shapes, file.get_tensor)


def _unpickled(path: Path) -> Stored:
    """A file of `torch.save`, which may hold nothing but tensors and plain values."""
    if not zipfile.is_zipfile(path):
        raise ModelFileError(f"{path}: damaged, or not a file of weights; download it again")
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelFileError(f"{path}: damaged, or not a file of weights ({reason}); download it again") from error
    if isinstance(content, Mapping) and isinstance(content.get(STATE), Mapping):
        content = content[STATE]
    if not isinstance(content, Mapping) or not content:
        raise ModelFileError(f"{path}: holds no weights by name; is it another model's?")
    tensors = {str(name): value for name, value in content.items()}
    strange = [name for name, value in tensors.items() if not _is_plain(value)]
    if strange or _overlap(tensors.values()):
        what = f"{listed(strange)} are no plain tensors" if strange else "weights lie in one place"
        raise ModelFileError(f"{path}: {what}; it is another model's")
    return Stored(path, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, tensors.__getitem__)


def _is_plain(value: object) -> bool:
    """Whether it is a tensor that holds each of its values, and so is no larger than the file says."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return not value.is_quantized and value.is_contiguous()


def _overlap(tensors: Iterable[Tensor]) -> bool:
    """Whether tensors share values."""
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors if tensor.nbytes)
    return any(end > start for (_, end), (start, _) in pairwise(places))


def floating(stored: Stored, name: str) -> Tensor:
    """A tensor by name; ModelFileError if it isn't one of floating-point numbers."""
    tensor = stored.get(name)
    if not tensor.is_floating_point():
        raise ModelFileError(f"{stored.path}: the weight {name!r} is {tensor.dtype}; it must be floating-point")
    return tensor
