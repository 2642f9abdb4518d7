"""Linear layers by the fastest of the ways that a CPU has, which depends on how many rows there are.

Many rows: oneDNN's product with bias and activation, as torch's compiler calls it on CPUs, up to a third faster than
`functional.linear`; on Intel's CPUs MKL is faster still in float32, if there are very many rows and no activation.

oneDNN brings a weight into another order at each call; `pack` does that once. In bfloat16 it takes a quarter of a
product of 237 rows on a CPU with AMX. In float32 on one with AVX-512, 1024 x 4096: a third of 4 to 16 rows, an eighth
of 64, a 25th of 1126; but one row is a fifth slower when packed.

Few rows, as one token after another needs them: each weight is read once, so memory is the limit. Measured on an
AVX-512 CPU, one row, weights from RAM, as a share of the time of `functional.linear`: through oneDNN 0.8 in float32;
through an embedding bag 0.7 in float32 and 0.4 in bfloat16, of which oneDNN copies the weight each time. On one of
Intel's with AMX: oneDNN 1.2 and a bag 1.2 in float32, where MKL is best; in bfloat16 a bag 0.88, packed 0.78.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import lru_cache
from math import gcd
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

LetGo: TypeAlias = Callable[[Tensor], object]
FEW_ROWS = 4
MKL_ROWS = 320
"""So many make MKL's float32 product the faster one: of oneDNN's time 1.0 to 1.1 at 237, 0.95 at 400, 0.87 at 1124."""
BLOCKS = {torch.bfloat16: 128, torch.float32: 32}
"""Outputs in a block: as many as were fastest."""
LEAST_BYTES = 1 << 20
"""Of a weight: what is smaller stays in a cache, and waking other threads for it costs more than reading it."""
FAST_BAGS = ("AVX2", "AVX512")
X86 = ("x86_64", "AMD64")


def _has_onednn() -> bool:
    """Whether torch has oneDNN, on an x86 CPU. Arm's library below it fuses nothing, and nothing was tried there."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and platform.machine() in X86


ONEDNN = _has_onednn()
FUSED_PRODUCT = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if ONEDNN else None
"""None where torch lacks it."""


def _fused_dtypes() -> tuple[torch.dtype, ...]:
    """Those in which this CPU has the fused product."""
    if FUSED_PRODUCT is None:
        return ()
    bfloat16 = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return (torch.float32, torch.bfloat16) if bfloat16 is not None and bfloat16() else (torch.float32,)


FUSED_DTYPES = _fused_dtypes()
REORDER = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None) if ONEDNN else None
"""None where torch lacks it."""
EXPECTED_ROWS = 256
"""From 16 rows on, the order doesn't depend on it."""


def _has_fast_mkl() -> bool:
    """Whether torch has MKL, and the CPU is one for which its makers tune it.

    There a product is the same wherever its weight lies; without AVX2 some are not.
    """
    describe: Callable[[], dict[str, object]] = getattr(torch.cpu, "get_capabilities", dict)
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    known = torch.backends.cpu.get_cpu_capability() in FAST_BAGS
    return has_mkl and known and "Intel" in str(describe().get("cpu_name"))


FAST_MKL = _has_fast_mkl()


def _blocked_dtypes() -> frozenset[torch.dtype]:
    """Those in which this CPU has nothing faster for few rows than bags of a weight in blocks."""
    if torch.backends.cpu.get_cpu_capability() not in FAST_BAGS:
        return frozenset()
    tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
    faster = {torch.float32: FAST_MKL, torch.bfloat16: tiles and torch.bfloat16 in FUSED_DTYPES}
    return frozenset(dtype for dtype in BLOCKS if not faster[dtype])


BLOCKED_DTYPES = _blocked_dtypes()


def _packed_dtypes() -> frozenset[torch.dtype]:
    """Those in which oneDNN's own order makes it the fastest for many rows."""
    if REORDER is None:
        return frozenset()
    return frozenset(FUSED_DTYPES) - ({torch.float32} if FAST_MKL else frozenset())


PACKED_DTYPES = _packed_dtypes()


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
        if self._fuses(x):
            return _fused(x, self.weight, self.bias, self.gelu)
        y = functional.linear(x, self.weight, self.bias)
        return y if self.gelu is None else functional.gelu(y, approximate=self.gelu)

    def _fuses(self, x: Tensor) -> bool:
        if FUSED_PRODUCT is None or x.device.type != "cpu" or x.dtype not in FUSED_DTYPES:
            return False
        rows = x.numel() // x.shape[-1]
        if FAST_MKL and x.dtype == torch.float32 and self.gelu is None and not FEW_ROWS < rows < MKL_ROWS:
            return False
        return rows > FEW_ROWS or self.weight.nbytes >= LEAST_BYTES


class PackedLinear(nn.Module):
    """A linear layer whose weight lies in the order in which this CPU multiplies, so that no call makes it anew.

    It gives what `Linear` gives, bit for bit; so one row of float32, whose sums oneDNN orders by how the weight lies,
    has its weight brought back, which is slow. Its weight is oneDNN's, which can't be copied to a device or in parts:
    only for models that run on the CPU itself.
    """

    weight: Tensor

    def __init__(self, layer: Linear) -> None:
        super().__init__()
        assert REORDER is not None
        with torch.inference_mode(False), torch.no_grad():
            packed = REORDER(layer.weight.detach(), EXPECTED_ROWS)
        self.register_buffer("weight", packed, persistent=False)
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
        return _fused(x, self.weight.to_dense() if one else self.weight, self.bias, self.gelu)


def pack(module: nn.Module, let_go: LetGo = lambda weight: None, *, many_rows: Iterable[nn.Module] = ()) -> None:
    """Let large `Linear` layers in `module` be `PackedLinear`, where this CPU is faster with them.

    In bfloat16 all; in float32 those in the parts `many_rows`, which hardly ever get a single row.

    let_go: called with each weight once it was copied and the module no longer needs it.
    """
    wide = {id(layer) for part in many_rows for layer in part.modules()}

    def wanted(layer: Linear) -> bool:
        dtype = layer.weight.dtype
        return dtype in PACKED_DTYPES and (dtype != torch.float32 or id(layer) in wide)

    _replace(module, PackedLinear, wanted, let_go)


def _fused(x: Tensor, weight: Tensor, bias: Tensor | None, gelu: str | None) -> Tensor:
    assert FUSED_PRODUCT is not None
    fused: Tensor = FUSED_PRODUCT(x, weight, bias, "none" if gelu is None else "gelu", [], gelu or "")
    return fused


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


def lay_out_in_blocks(module: nn.Module, let_go: LetGo = lambda weight: None) -> None:
    """Let each large `Linear` in `module` be a `BlockedLinear`, where that is faster on this CPU.

    let_go: see `pack`.
    """
    _replace(module, BlockedLinear.of, lambda one: one.gelu is None and one.weight.dtype in BLOCKED_DTYPES, let_go)


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
        if child.weight.nbytes >= LEAST_BYTES and wanted(child):
            setattr(owner, name, make(child))
            let_go(child.weight)


@lru_cache(maxsize=64)
def _bags_of(blocks: int, width: int, rows: int) -> tuple[Tensor, Tensor]:
    """For each block, once for each row: which rows of the table are in its bag, and where the bags start."""
    with torch.inference_mode(False):
        tables = torch.arange(blocks * width, dtype=torch.int32).view(blocks, 1, width)
        starts = torch.arange(0, blocks * rows * width, width, dtype=torch.int32)
        return tables.expand(blocks, rows, width).reshape(-1), starts
