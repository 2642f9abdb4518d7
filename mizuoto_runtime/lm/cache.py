"""Caches of attention's keys and values, one for each sequence that a language model generates.

Both kinds hold the same numbers. `dynamic` concatenates: memory is what is held, and every append copies the layer.
`static` writes into buffers that double when full: an append copies nothing else, and attention reads strided views.

All tensors are (rows, kv heads, positions, head_dim); a row is one sequence of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

CacheKind = Literal["dynamic", "static"]
FIRST_POSITIONS = 256


class KvCache(Protocol):
    """What a model's layers need of a cache, and what a generation loop does with it.

    An append that fails leaves its layer as it was; `crop` to the length before the step then evens the layers out, so
    that the step can be run again. A `reorder` that fails leaves the cache empty.
    """

    kind: CacheKind

    @property
    def length_positions(self) -> int:
        """Positions that every layer holds."""

    @property
    def rows(self) -> int:
        """Sequences in the batch; 0 while nothing is held."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the tensors that are held, unused room included."""

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions to a layer; returns all its keys and values, to be read before its next append.

        keys, values: (rows, kv heads, new positions, head_dim); they are copied. ValueError if they don't fit what the
        layer holds: other rows, heads, sizes, dtype or device.
        """

    def crop(self, length_positions: int) -> None:
        """Forget what lies after the first `length_positions`, keeping its memory. ValueError if fewer are held."""

    def reset(self) -> None:
        """Forget everything and give its memory back."""

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        """Row i becomes what row rows[i] was; rows may repeat or be left out (beams, finished sequences)."""


def new_cache(kind: CacheKind, layers: int, first_positions: int = FIRST_POSITIONS) -> KvCache:
    """An empty cache of that kind for a model of `layers` layers. first_positions: see `BufferCache`."""
    return DynamicCache(layers) if kind == "dynamic" else BufferCache(layers, first_positions)


def position_bytes(kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of the key and the value of one position in one layer, for one row."""
    return 2 * kv_heads * head_dim * dtype.itemsize


def peak_bytes(
    position_bytes: int,
    layers: int,
    positions: int,
    kind: CacheKind,
    rows: int,
    first_positions: int = FIRST_POSITIONS,
) -> int:
    """The most bytes that a cache takes while it grows to `positions`, the caller's own new keys not counted.

    dynamic: all layers, and the new copy of one. static: the buffers of all layers, and one layer's old ones, half as
    large, while they grow. Reordering rows needs no more. first_positions: see `BufferCache`.
    """
    if kind == "dynamic":
        return position_bytes * rows * positions * (layers + 1)
    room = room_for(positions, first_positions)
    return position_bytes * rows * (room * layers + room // 2)


def room_for(positions: int, first_positions: int = FIRST_POSITIONS) -> int:
    """Positions of a buffer that holds `positions`: `first_positions`, doubled until they suffice."""
    room = first_positions
    while room < positions:
        room *= 2
    return room


@dataclass(slots=True)
class _Layer:
    """keys, values: (rows, kv heads, room, head_dim), valid up to `length`."""

    keys: Tensor
    values: Tensor
    length: int

    def valid(self) -> tuple[Tensor, Tensor]:
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class _Layers:
    """What both kinds have in common. An entry is None until the layer's first append."""

    def __init__(self, layers: int) -> None:
        self._layers: list[_Layer | None] = [None] * layers

    @property
    def length_positions(self) -> int:
        return min((0 if layer is None else layer.length for layer in self._layers), default=0)

    @property
    def rows(self) -> int:
        return next((layer.keys.shape[0] for layer in self._held()), 0)

    @property
    def held_bytes(self) -> int:
        storages = [tensor.untyped_storage() for layer in self._held() for tensor in (layer.keys, layer.values)]
        return sum(storage.nbytes() for storage in storages)

    def reset(self) -> None:
        self._layers = [None] * len(self._layers)

    def _held(self) -> Iterator[_Layer]:
        return (layer for layer in self._layers if layer is not None)

    def _check_crop(self, length_positions: int) -> None:
        if not 0 <= length_positions <= self.length_positions:
            raise ValueError(f"the cache holds {self.length_positions} positions, it can't keep {length_positions}")


class DynamicCache(_Layers):
    """Concatenates: every append makes a layer's keys and values anew."""

    kind: CacheKind = "dynamic"

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        held = self._layers[layer]
        _check_alike(keys, values)
        if held is None:
            grown = _copy(keys), _copy(values)
        else:
            _check_fits(held, keys)
            grown = torch.cat((held.keys, keys), dim=2), torch.cat((held.values, values), dim=2)
        self._layers[layer] = _Layer(*grown, grown[0].shape[2])
        return grown

    def crop(self, length_positions: int) -> None:
        self._check_crop(length_positions)
        for layer in self._held():
            layer.length = length_positions
            layer.keys, layer.values = layer.valid()

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        try:
            for layer in self._held():
                order = _row_numbers(rows, layer.keys)
                layer.keys, layer.values = layer.keys.index_select(0, order), layer.values.index_select(0, order)
        except BaseException:
            self.reset()
            raise


class BufferCache(_Layers):
    """Writes into buffers that double when full (K1); results are the same on the CPU.

    first_positions: room of a layer's first buffers. What `append` returns is valid until the layer's buffers change:
    its next append overwrites nothing that was returned, `crop` and `reorder` let it be overwritten.
    """

    kind: CacheKind = "static"

    def __init__(self, layers: int, first_positions: int = FIRST_POSITIONS) -> None:
        super().__init__(layers)
        self.first_positions = first_positions

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        _check_alike(keys, values)
        held = self._with_room(self._layers[layer], keys)
        start, end = held.length, held.length + keys.shape[2]
        held.keys[:, :, start:end].copy_(keys)
        held.values[:, :, start:end].copy_(values)
        held.length = end
        self._layers[layer] = held
        return held.valid()

    def crop(self, length_positions: int) -> None:
        self._check_crop(length_positions)
        for layer in self._held():
            layer.length = length_positions

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        try:
            for layer in self._held():
                order = _row_numbers(rows, layer.keys)
                layer.keys = self._reordered(layer.keys, order, layer.length)
                layer.values = self._reordered(layer.values, order, layer.length)
        except BaseException:
            self.reset()
            raise

    @staticmethod
    def _reordered(buffer: Tensor, order: Tensor, length: int) -> Tensor:
        valid = buffer[:, :, :length]
        if len(order) == len(buffer):
            valid.copy_(valid.index_select(0, order))
            return buffer
        reordered = _buffer(buffer, len(order), buffer.shape[2])
        torch.index_select(valid, 0, order, out=reordered[:, :, :length])
        return reordered

    def _with_room(self, held: _Layer | None, keys: Tensor) -> _Layer:
        """`held` itself, or its content in larger buffers, with room for `keys`."""
        rows, _, added, _ = keys.shape
        if held is not None:
            _check_fits(held, keys)
            if held.length + added <= held.keys.shape[2]:
                return held
        length = 0 if held is None else held.length
        room = room_for(length + added, self.first_positions)
        grown = _Layer(_buffer(keys, rows, room), _buffer(keys, rows, room), length)
        if held is not None:
            for new, old in zip(grown.valid(), held.valid(), strict=True):
                new.copy_(old)
        return grown


def _buffer(like: Tensor, rows: int, room: int) -> Tensor:
    """Uninitialised; never an inference tensor, so that it can be written to in any mode."""
    with torch.inference_mode(False):
        return torch.empty((rows, like.shape[1], room, like.shape[3]), dtype=like.dtype, device=like.device)


def _copy(tensor: Tensor) -> Tensor:
    """A contiguous copy that shares no memory with `tensor`, which may be a part of a larger projection."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _row_numbers(rows: Tensor | Sequence[int], like: Tensor) -> Tensor:
    return torch.as_tensor(rows, dtype=torch.long, device=like.device)


def _check_alike(keys: Tensor, values: Tensor) -> None:
    if keys.shape != values.shape or keys.dtype != values.dtype:
        raise ValueError(f"keys are {_described(keys)}, values {_described(values)}; they must be alike")


def _check_fits(held: _Layer, keys: Tensor) -> None:
    there = held.keys
    same_shape = (keys.shape[0], keys.shape[1], keys.shape[3]) == (there.shape[0], there.shape[1], there.shape[3])
    if not same_shape or keys.dtype != there.dtype or keys.device != there.device:
        raise ValueError(f"the cache holds keys {_described(there)}, {_described(keys)} can't be added; reset it first")


def _described(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
