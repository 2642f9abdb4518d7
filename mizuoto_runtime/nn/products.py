"""By which way this CPU computes linear layers fastest: depends on its maker, the dtype and how many rows there are.

| rows            | float32, Intel's | float32, others   | bfloat16, AMX  | bfloat16, AVX-512 |
|-----------------|------------------|-------------------|----------------|-------------------|
| 1               | MKL              | oneDNN, or bags   | oneDNN, packed | bags              |
| 2 to 4          | MKL              | oneDNN, or packed | oneDNN, packed | bags              |
| 5 to 319        | oneDNN           | oneDNN, or packed | oneDNN, packed | oneDNN, packed    |
| more, no GELU   | MKL              | oneDNN, or packed | oneDNN, packed | oneDNN, packed    |
| more, then GELU | oneDNN           | oneDNN, or packed | oneDNN, packed | oneDNN, packed    |

oneDNN: its product with bias and activation, as torch's compiler calls it on CPUs; with many rows up to a third faster
than `functional.linear`, which is MKL's in float32. Packed: with a weight that is already in the order that oneDNN
makes of it at each call. That takes a quarter of a product of 237 rows in bfloat16 with AMX; in float32 with AVX-512,
for 1024 to 4096 numbers, a third of one of 4 to 16 rows, an eighth of 64, a 25th of 1126; but one row is a fifth
slower.

Bags: few rows, as one token after another needs them, read each weight once, so memory is the limit. With AVX-512, one
row, weights from RAM, as a share of the time of `functional.linear`: through oneDNN 0.8 in float32; through an
embedding bag 0.7 in float32 and 0.4 in bfloat16, of which oneDNN copies the weight each time. On one of Intel's with
AMX: oneDNN 1.2 and a bag 1.2 in float32; in bfloat16 a bag 0.88, packed 0.78.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

import torch
from torch import Tensor

FEW_ROWS = 4
MKL_ROWS = 320
"""So many make MKL's float32 product the faster one: of oneDNN's time 1.0 to 1.1 at 237, 0.95 at 400, 0.87 at 1124."""
BLOCKS = {torch.bfloat16: 128, torch.float32: 32}
"""Outputs in a block of bags: as many as were fastest."""
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


def fuses(x: Tensor, weight: Tensor, gelu: str | None) -> bool:
    """Whether `fused` is the fastest way for a weight that lies as it is stored."""
    if FUSED_PRODUCT is None or x.device.type != "cpu" or x.dtype not in FUSED_DTYPES:
        return False
    rows = x.numel() // x.shape[-1]
    if FAST_MKL and x.dtype == torch.float32 and gelu is None and not FEW_ROWS < rows < MKL_ROWS:
        return False
    return rows > FEW_ROWS or weight.nbytes >= LEAST_BYTES


def fused(x: Tensor, weight: Tensor, bias: Tensor | None, gelu: str | None) -> Tensor:
    """(…, inputs) → (…, outputs) by oneDNN. weight: as it is stored, or of `packed`."""
    assert FUSED_PRODUCT is not None
    product: Tensor = FUSED_PRODUCT(x, weight, bias, "none" if gelu is None else "gelu", [], gelu or "")
    return product


def packed(weight: Tensor) -> Tensor:
    """The weight, (outputs, inputs), as a tensor of oneDNN's in its order."""
    assert REORDER is not None
    with torch.inference_mode(False), torch.no_grad():
        reordered: Tensor = REORDER(weight.detach(), EXPECTED_ROWS)
    return reordered
