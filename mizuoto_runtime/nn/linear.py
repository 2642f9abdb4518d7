"""Linear layers by the fastest of the ways that a CPU has, which depends on how many rows there are.

Many rows: oneDNN's product with bias and activation, as torch's compiler calls it on CPUs, up to a third faster than
`functional.linear`. Few rows, as one token after another needs them: each weight is read once, so memory is the limit.
Measured on an AVX-512 CPU, one row, weights from RAM, as a share of the time of `functional.linear`: through oneDNN 0.8
in float32; through an embedding bag 0.7 in float32 and 0.4 in bfloat16, of which oneDNN copies the weight each time.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

FEW_ROWS = 4
BLOCKS = {torch.bfloat16: 128, torch.float32: 32}
"""Outputs in a block: as many as were fastest."""
LEAST_BYTES = 1 << 20
"""Of a weight: what is smaller stays in a cache, and waking other threads for it costs more than reading it."""
FAST_BAGS = ("AVX2", "AVX512")


ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
FUSED_PRODUCT = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if ONEDNN else None
"""None where torch lacks it."""


def _fused_dtypes() -> tuple[torch.dtype, ...]:
    """Those in which this CPU has the fused product."""
    if FUSED_PRODUCT is None:
        return ()
    bfloat16 = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return (torch.float32, torch.bfloat16) if bfloat16 is not None and bfloat16() else (torch.float32,)


FUSED_DTYPES = _fused_dtypes()


class Linear(nn.Linear):
    """(…, inputs) → (…, outputs), without initial values: weights are always loaded.

    gelu: GELU follows, exact ("none") or by its tanh formula; None: nothing does.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, gelu: Literal["none", "tanh"] | None = None):
        super().__init__(inputs, outputs, bias=bias)
        self.gelu = gelu

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, x: Tensor) -> Tensor:
        if FUSED_PRODUCT is not None and self._fuses(x):
            activation = "none" if self.gelu is None else "gelu"
            fused: Tensor = FUSED_PRODUCT(x, self.weight, self.bias, activation, [], self.gelu or "")
            return fused
        y = functional.linear(x, self.weight, self.bias)
        return y if self.gelu is None else functional.gelu(y, approximate=self.gelu)

    def _fuses(self, x: Tensor) -> bool:
        if x.device.type != "cpu" or x.dtype not in FUSED_DTYPES:
            return False
        return x.numel() > FEW_ROWS * x.shape[-1] or self.weight.nbytes >= LEAST_BYTES


class BlockedLinear(nn.Module):
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
    def of(cls, layer: nn.Linear) -> BlockedLinear:
        """The same layer; its weight is copied."""
        outputs, width = layer.weight.shape
        block = gcd(outputs, BLOCKS[layer.weight.dtype])
        with torch.inference_mode(False), torch.no_grad():
            weight = layer.weight.view(outputs // block, block, width).transpose(1, 2).contiguous()
        return cls(weight, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) → (…, outputs)."""
        rows = x.reshape(-1, x.shape[-1])
        few = x.device.type == "cpu" and len(rows) <= FEW_ROWS
        blocks = self._bags(rows) if few else torch.matmul(rows, self.weight)
        product = blocks.transpose(0, 1).reshape(*x.shape[:-1], -1)
        return product if self.bias is None else product + self.bias

    def _bags(self, x: Tensor) -> Tensor:
        """(rows, width) → (blocks, rows, outputs in a block)."""
        blocks, width, block = self.weight.shape
        rows, starts = _bags_of(blocks, width, len(x))
        weights = x.expand(blocks, len(x), width).reshape(-1)
        table = self.weight.view(-1, block)
        bags = functional.embedding_bag(rows, table, starts, per_sample_weights=weights, mode="sum")
        return bags.view(blocks, len(x), block)


def lay_out_in_blocks(module: nn.Module) -> list[Tensor]:
    """Let every `Linear` in `module` be a `BlockedLinear`, where that is faster on this CPU.

    Returns the weights that were copied for it, which the module no longer needs.
    """
    copied: list[Tensor] = []
    if torch.backends.cpu.get_cpu_capability() not in FAST_BAGS:
        return copied
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, Linear) and child.gelu is None and _gains(child.weight):
                setattr(part, name, BlockedLinear.of(child))
                copied.append(child.weight)
    return copied


def _gains(weight: Tensor) -> bool:
    return weight.dtype in BLOCKS and weight.nbytes >= LEAST_BYTES


@lru_cache(maxsize=64)
def _bags_of(blocks: int, width: int, rows: int) -> tuple[Tensor, Tensor]:
    """For each block, once for each row: which rows of the table are in its bag, and where the bags start."""
    with torch.inference_mode(False):
        tables = torch.arange(blocks * width, dtype=torch.int32).view(blocks, 1, width)
        starts = torch.arange(0, blocks * rows * width, width, dtype=torch.int32)
        return tables.expand(blocks, rows, width).reshape(-1), starts
