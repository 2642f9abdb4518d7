"""A file's tensors, of safetensors or of `torch.save`: mapped, and nothing but tensors."""

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

from ..errors import ModelFileError
from .checkpoint import Rename, listed, opened_safetensors, renamed


@dataclass(frozen=True)
class Stored:
    """The tensors of the file `path`, read when they are asked for by name. shapes: of all of them."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    get: Callable[[str], Tensor]

    def floating(self, name: str) -> Tensor:
        """A tensor by name; ModelFileError if it isn't one of floating-point numbers."""
        tensor = self.get(name)
        if not tensor.is_floating_point():
            raise ModelFileError(f"{self.path}: the weight {name!r} is {tensor.dtype}; it must be floating-point")
        return tensor

    def renamed(self, rename: Rename) -> Stored:
        """The same tensors under other names. ModelFileError if two of them get the same one."""
        names = renamed(self.shapes, rename, self.path)
        shapes = {ours: self.shapes[name] for ours, name in names.items()}
        return Stored(self.path, shapes, lambda ours: self.get(names[ours]))


@contextmanager
def opened(path: Path, *wrappings: str) -> Iterator[Stored]:
    """The tensors of the file at `path`. ModelFileError for a damaged file, or one that holds more than tensors.

    wrappings: names under which a file of `torch.save` may hold the weights, the first that is there; else it holds
    them itself.
    """
    if path.suffix != ".safetensors":
        yield _unpickled(path, wrappings)
        return
    with opened_safetensors(path) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        yield Stored(path, shapes, file.get_tensor)


def _unpickled(path: Path, wrappings: Iterable[str]) -> Stored:
    """A file of `torch.save`. One in the format before PyTorch 1.6 can't be mapped, and is read whole."""
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # the library raises plain ones
        reason = _reason(error)
        raise ModelFileError(f"{path}: damaged, or not a file of weights ({reason}); download it again") from error
    if isinstance(content, Mapping):
        content = next((content[key] for key in wrappings if isinstance(content.get(key), Mapping)), content)
    if not isinstance(content, Mapping) or not content or not all(isinstance(name, str) for name in content):
        raise ModelFileError(f"{path}: holds no weights by name; is it another model's?")
    strange = [name for name, value in content.items() if not _is_plain(value)]
    if strange or _overlap(content.values()):
        what = f"{listed(strange)} are no plain tensors" if strange else "weights lie in one place"
        raise ModelFileError(f"{path}: {what}; download the file again, it is damaged or another model's")
    return Stored(path, {name: tuple(tensor.shape) for name, tensor in content.items()}, content.__getitem__)


def _reason(error: Exception) -> str:
    """Why a file doesn't open. What torch says of other things than tensors ends in advice to run them."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds other things than tensors, which aren't run"
    return str(error).partition("\n")[0] or type(error).__name__


def _is_plain(value: object) -> bool:
    """Whether it is a tensor that holds each of its values, and so is no larger than the file says."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return not value.is_quantized and value.is_contiguous()


def _overlap(tensors: Iterable[Tensor]) -> bool:
    """Whether tensors share values."""
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors if tensor.nbytes)
    return any(end > start for (_, end), (start, _) in pairwise(places))
