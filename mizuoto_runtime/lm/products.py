"""Linear layers for few rows, as one token after another needs them: each weight is read once, so memory is the limit.

Measured on an AVX-512 CPU, one row, weights from RAM, as a share of the time of `functional.linear`: through oneDNN 0.8
in float32; through an embedding bag 0.7 in float32 and 0.4 in bfloat16, of which oneDNN copies the weight each time.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import torch
from torch import Tensor, nn
from torch.nn import functional

FEW_ROWS = 4
BLOCKS = {torch.bfloat16: 128, torch.float32: 32}
"""Outputs in a block: as many as were fastest."""
LEAST_BYTES = 1 << 20
"""Of a weight: what is smaller stays in a cache, and waking other threads for it costs more than reading it."""
FAST_BAGS = ("AVX2", "AVX512")


class Projection(nn.Linear):
    """A linear layer of (rows, width)."""

    def forward(self, x: Tensor) -> Tensor:
        few = x.dtype == torch.float32 and x.device.type == "cpu" and len(x) <= FEW_ROWS
        if few and self.weight.nbytes >= LEAST_BYTES and _has_one_dnn():
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
            return product
        return functional.linear(x, self.weight, self.bias)


class BlockedProjection(nn.Module):
    """A linear layer whose outputs lie in blocks, so that a product with few rows reads its weight in one go.

    weight: (blocks, width, outputs in a block). On a CPU a block is a bag of the table's rows, weighted with `x`;
    elsewhere, and with many rows, a batch of products.
    """

    STREAMABLE = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @classmethod
    def of(cls, layer: nn.Linear) -> BlockedProjection:
        """The same layer; its weight is copied."""
        outputs, width = layer.weight.shape
        block = gcd(outputs, BLOCKS[layer.weight.dtype])
        with torch.inference_mode(False), torch.no_grad():
            weight = layer.weight.view(outputs // block, block, width).transpose(1, 2).contiguous()
        return cls(weight, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) → (rows, outputs)."""
        few = x.device.type == "cpu" and len(x) <= FEW_ROWS
        blocks = self._bags(x) if few else torch.matmul(x, self.weight)
        product = blocks.transpose(0, 1).reshape(len(x), -1)
        return product if self.bias is None else product + self.bias

    def _bags(self, x: Tensor) -> Tensor:
        """(rows, width) → (blocks, rows, outputs in a block)."""
        blocks, width, block = self.weight.shape
        rows, starts = _bags_of(blocks, width, len(x))
        weights = x.expand(blocks, len(x), width).reshape(-1)
        table = self.weight.view(-1, block)
        bags = functional.embedding_bag(rows, table, starts, per_sample_weights=weights, mode="sum")
        return bags.view(blocks, len(x), block)


def lay_out_in_blocks(module: nn.Module) -> None:
    """Let every `Projection` in `module` be a `BlockedProjection`, where that is faster on this CPU."""
    if torch.backends.cpu.get_cpu_capability() not in FAST_BAGS:
        return
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, Projection) and _gains(child.weight):
                setattr(part, name, BlockedProjection.of(child))


def _gains(weight: Tensor) -> bool:
    return weight.dtype in BLOCKS and weight.nbytes >= LEAST_BYTES


@lru_cache(maxsize=64)
def _bags_of(blocks: int, width: int, rows: int) -> tuple[Tensor, Tensor]:
    """For each block, once for each row: which rows of the table are in its bag, and where the bags start."""
    with torch.inference_mode(False):
        tables = torch.arange(blocks * width, dtype=torch.int32).view(blocks, 1, width)
        starts = torch.arange(0, blocks * rows * width, width, dtype=torch.int32)
        return tables.expand(blocks, rows, width).reshape(-1), starts


@lru_cache(maxsize=1)
def _has_one_dnn() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")
