"""A model's safetensors files, one or shards, and modules filled with their tensors: mapped and strict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..errors import ModelFileError, ModelNotFound
from .entries import Entry, read_json
from .pages import converted

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_LISTED = 4
COMPUTABLE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
Rename = Callable[[str], str | None]
"""A name in a checkpoint → ours; None: a weight that isn't used."""


class Checkpoint:
    """The safetensors files of `folder`. ModelNotFound if there are none; every other fault is a ModelFileError."""

    def __init__(self, folder: Path) -> None:
        single, index = folder / WEIGHTS, folder / INDEX
        if single.is_file():
            self.path = single
            with opened_safetensors(single) as file:
                self._files = dict.fromkeys(file.keys(), single)
        elif index.is_file():
            self.path = index
            self._files = _shards(index)
        else:
            raise ModelNotFound(f"{folder}: has neither {WEIGHTS} nor {INDEX}; download the model again")

    def check_prefixes(self, *prefixes: str) -> None:
        """Refuse names that begin with none of `prefixes`."""
        self._refuse([name for name in self._files if not name.startswith(prefixes)])

    def dtype(self, prefix: str) -> torch.dtype:
        """Of the first weight under `prefix`; ModelFileError if there is none, or none can compute in it."""
        tensor = next((tensor for _, tensor in self._tensors(prefix)), None)
        if tensor is None:
            raise ModelFileError(f"{self.path}: holds no weights under {prefix!r}; is it another model's?")
        return computable(tensor.dtype, self.path)

    def fill(self, module: nn.Module, prefix: str, rename: Rename, dtype: torch.dtype) -> None:
        """Give `module`, built on the meta device, the weights under `prefix`: all of them, and no others."""
        wanted = {name: tensor.shape for name, tensor in module.state_dict().items()}
        theirs = [name for name in self._files if name.startswith(prefix)]
        names = renamed(theirs, lambda name: rename(name.removeprefix(prefix)), self.path)
        self._refuse([name for target, name in names.items() if target not in wanted])
        targets = {name: target for target, name in names.items()}
        found: dict[str, Tensor] = {}
        for name, tensor in self._tensors(prefix):
            if name in targets:
                self._check(name, tensor, wanted[targets[name]])
                found[targets[name]] = converted(tensor, dtype)
        missing = wanted.keys() - found.keys()
        if missing:
            raise ModelFileError(
                f"{self.path}: {len(missing)} weights under {prefix!r} are missing: {listed(missing)}; "
                "download the file again"
            )
        module.load_state_dict(found, strict=True, assign=True)
        module.requires_grad_(False).eval()

    def _check(self, name: str, tensor: Tensor, shape: torch.Size) -> None:
        if tensor.shape != shape or not tensor.is_floating_point():
            raise ModelFileError(
                f"{self._files[name]}: the weight {name!r} is {list(tensor.shape)} {tensor.dtype}; by its config.json "
                f"it is {list(shape)}. The two files belong to different models"
            )

    def _refuse(self, unexpected: list[str]) -> None:
        if unexpected:
            raise ModelFileError(f"{self.path}: unexpected weights: {listed(unexpected)}; it is another model's")

    def _tensors(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        names = [name for name in self._files if name.startswith(prefix)]
        for path in dict.fromkeys(self._files[name] for name in names):
            with opened_safetensors(path) as file:
                there = set(file.keys())
                for name in names:
                    if self._files[name] != path:
                        continue
                    if name not in there:
                        raise ModelFileError(f"{path}: lacks {name!r}, which {INDEX} says it holds; download it again")
                    yield name, file.get_tensor(name)


def renamed(names: Iterable[str], rename: Rename, path: Path) -> dict[str, str]:
    """Our names → those in the file `path`. ModelFileError if two of these are the same weight."""
    found: dict[str, str] = {}
    for name in names:
        ours = rename(name)
        if ours is None:
            continue
        if ours in found:
            first, second = sorted((found[ours], name))
            raise ModelFileError(
                f"{path}: {first!r} and {second!r} are the same weight, {ours!r}, and only one can be used; "
                "download the file again"
            )
        found[ours] = name
    return found


def computable(dtype: torch.dtype, path: Path) -> torch.dtype:
    """`dtype`, of weights in the file `path`. ModelFileError if it is of floating point, but none computes in it."""
    if dtype in COMPUTABLE or not dtype.is_floating_point:
        return dtype
    known = ", ".join(str(each).removeprefix("torch.") for each in COMPUTABLE)
    raise ModelFileError(
        f"{path}: its weights are {str(dtype).removeprefix('torch.')}; {known} can be computed in. Set compute.dtype "
        "to one of these, or take a file in which they are"
    )


@contextmanager
def opened_safetensors(path: Path) -> Iterator[Any]:
    """The file, as `safe_open` gives it: mapped, and only its header read. ModelFileError for a damaged one."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path}: truncated, or no safetensors file ({error}); download it again") from error


class Shards:
    """Several open safetensors files as if they were one. files: where each name is."""

    def __init__(self, files: Mapping[str, Any]) -> None:
        self._files = files

    def keys(self) -> KeysView[str]:
        return self._files.keys()

    def get_slice(self, name: str) -> Any:
        return self._files[name].get_slice(name)

    def get_tensor(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor


@contextmanager
def opened_shards(index: Path) -> Iterator[Shards]:
    """The files that the index at `index` names; errors as of `opened_safetensors`."""
    places = _shards(index)
    with ExitStack() as stack:
        opened = {path: stack.enter_context(opened_safetensors(path)) for path in dict.fromkeys(places.values())}
        yield Shards({name: opened[path] for name, path in places.items()})


def _shards(index: Path) -> dict[str, Path]:
    places = Entry(read_json(index), str(index)).entry("weight_map").content
    if not places:
        raise ModelFileError(f"{index}: weight_map is empty; download the file again")
    for name, shard in places.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not (index.parent / shard).is_file():
            raise ModelFileError(f"{index}: {name!r} should be in {shard!r}, which isn't beside it; download it again")
    return {name: index.parent / shard for name, shard in places.items()}


def listed(names: Iterable[str]) -> str:
    """Some of the names, for an error."""
    ordered = sorted(names)
    more = f" and {len(ordered) - MAX_LISTED} more" if len(ordered) > MAX_LISTED else ""
    return ", ".join(map(repr, ordered[:MAX_LISTED])) + more
