"""Linear layers, each of which knows one way to lay out its weight; which is fastest where is `products`' matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import lru_cache
from math import gcd
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import products

LetGo: TypeAlias = Callable[[Tensor], object]


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
        if products.fuses(x, self.weight, self.gelu):
            return products.fused(x, self.weight, self.bias, self.gelu)
        y = functional.linear(x, self.weight, self.bias)
        return y if self.gelu is None else functional.gelu(y, approximate=self.gelu)


class PackedLinear(nn.Module):
    """A linear layer whose weight lies in the order in which this CPU multiplies, so that no call makes it anew.

    It gives what `Linear` gives, bit for bit; so one row of float32, whose sums oneDNN orders by how the weight lies,
    has its weight brought back, which is slow. Its weight is oneDNN's, which can't be copied to a device or in parts:
    only for models that run on the CPU itself.
    """

    weight: Tensor

    def __init__(self, layer: Linear) -> None:
        super().__init__()
        self.register_buffer("weight", products.packed(layer.weight), persistent=False)
        self.bias = layer.bias
        self.gelu = layer.gelu

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedLinear:
        """torch can't copy such a weight; nothing changes it, so the copy has the same one."""
        memo[id(self.weight)] = self.weight
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__setstate__(deepcopy(self.__dict__, memo))  # type: ignore[no-untyped-call]
        return twin

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs), in the weight's dtype."""
        one = x.dtype == torch.float32 and x.numel() == x.shape[-1]
        return products.fused(x, self.weight.to_dense() if one else self.weight, self.bias, self.gelu)


def pack(module: nn.Module, let_go: LetGo = lambda weight: None, *, many_rows: Iterable[nn.Module] = ()) -> None:
    """Let large `Linear` layers in `module` be `PackedLinear`, where this CPU is faster with them.

    In bfloat16 all; in float32 those in the parts `many_rows`, which hardly ever get a single row.

    let_go: called with each weight once it was copied and the module no longer needs it.
    """
    wide = {id(layer) for part in many_rows for layer in part.modules()}

    def wanted(layer: Linear) -> bool:
        dtype = layer.weight.dtype
        return dtype in products.PACKED_DTYPES and (dtype != torch.float32 or id(layer) in wide)

    _replace(module, PackedLinear, wanted, let_go)


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
        block = gcd(outputs, products.BLOCKS[layer.weight.dtype])
        with torch.inference_mode(False), torch.no_grad():
            weight = layer.weight.view(outputs // block, block, width).transpose(1, 2).contiguous()
        return cls(weight, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) → (…, outputs)."""
        rows = x.reshape(-1, x.shape[-1])
        few = x.device.type == "cpu" and len(rows) <= products.FEW_ROWS
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


def lay_out_in_blocks(module: nn.Module, let_go: LetGo = lambda weight: None) -> None:
    """Let each large `Linear` in `module` be a `BlockedLinear`, where that is faster on this CPU.

    let_go: see `pack`.
    """
    dtypes = products.BLOCKED_DTYPES
    _replace(module, BlockedLinear.of, lambda layer: layer.gelu is None and layer.weight.dtype in dtypes, let_go)


def _replace(
    module: nn.Module, make: Callable[[Linear], nn.Module], wanted: Callable[[Linear], bool], let_go: LetGo
) -> None:
    """Put what `make` makes of it in the place of each large, wanted `Linear` whose weight hangs nowhere else.

    Nothing here holds a layer once it was replaced: a weight that isn't mapped leaves RAM before the next is copied.
    """
    modules = Counter(id(child) for part in module.modules() for child in part._modules.values())
    weights = Counter(id(weight) for part in module.modules() for weight in part.parameters(recurse=False))
    places = [(part, name) for part in module.modules() for name in part._modules]
    for owner, name in places:
        child = owner._modules[name]
        if not isinstance(child, Linear) or modules[id(child)] > 1 or weights[id(child.weight)] > 1:
            continue
        if child.weight.nbytes >= products.LEAST_BYTES and wanted(child):
            setattr(owner, name, make(child))
            let_go(child.weight)


@lru_cache(maxsize=64)
def _bags_of(blocks: int, width: int, rows: int) -> tuple[Tensor, Tensor]:
    """For each block, once for each row: which rows of the table are in its bag, and where the bags start."""
    with torch.inference_mode(False):
        tables = torch.arange(blocks * width, dtype=torch.int32).view(blocks, 1, width)
        starts = torch.arange(0, blocks * rows * width, width, dtype=torch.int32)
        return tables.expand(blocks, rows, width).reshape(-1), starts
