"""A tensor as bytes, where it lies in a file: what readers give and writers take, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

ELEMENT_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


@dataclass(frozen=True)
class RawTensor:
    """`data`: the elements, little-endian, row by row, as many as `shape` and `dtype` (torch's name) say."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def to_torch(self) -> Tensor:
        """A copy as a tensor in memory of its own."""
        import torch

        dtype = getattr(torch, self.dtype)
        if not len(self.data):
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(bytearray(self.data), dtype=dtype).reshape(self.shape)
