"""Linear layers for few rows give what `functional.linear` gives, whichever way they take."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from mizuoto_runtime.lm import products
from mizuoto_runtime.lm.products import BlockedProjection, Projection, lay_out_in_blocks
from mizuoto_runtime.memory.handle import ModelHandle

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3}


@pytest.fixture(autouse=True)
def small_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 0)


def layer(width: int, outputs: int, dtype: torch.dtype, *, bias: bool = False) -> Projection:
    rng = torch.Generator().manual_seed(width + outputs)
    made = Projection(width, outputs, bias=bias).to(dtype).requires_grad_(False)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=rng) / width**0.5)
    return made


def expected(projection: Projection, x: torch.Tensor) -> torch.Tensor:
    bias = None if projection.bias is None else projection.bias.double()
    return functional.linear(x.double(), projection.weight.double(), bias)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 9])
@pytest.mark.parametrize(
    ("width", "outputs", "bias"), [(64, 96, False), (96, 256, True), (7, 33, True), (16, 1, False)]
)
def test_products_are_right(dtype: torch.dtype, rows: int, width: int, outputs: int, bias: bool) -> None:
    projection = layer(width, outputs, dtype, bias=bias)
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(rows)).to(dtype)
    for kind in (projection, BlockedProjection.of(projection)):
        with torch.inference_mode():
            product = kind(x)
        assert product.shape == (rows, outputs) and product.dtype == dtype
        torch.testing.assert_close(product.double(), expected(projection, x), atol=TOLERANCE[dtype], rtol=1e-2)


def test_each_row_is_what_it_is_alone() -> None:
    blocked = BlockedProjection.of(layer(64, 96, torch.bfloat16))
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(blocked(x), torch.cat([blocked(row[None]) for row in x]))


def test_only_projections_of_known_dtypes_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = nn.ModuleDict(
        {"small": layer(8, 8, torch.float16), "wide": layer(8, 8, torch.bfloat16), "other": nn.Linear(8, 8)}
    )
    slow, fast = made, copy.deepcopy(made)
    lay_out_in_blocks(fast)
    assert [type(part) for part in fast.values()] == [Projection, BlockedProjection, nn.Linear]
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    lay_out_in_blocks(slow)
    assert [type(part) for part in slow.values()] == [Projection, Projection, nn.Linear]


def test_small_weights_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 64 * 96 * 4 + 1)
    projection = layer(64, 96, torch.float32)
    x = torch.ones(1, 64)
    assert torch.equal(projection(x), functional.linear(x, projection.weight))
    module = nn.ModuleList([projection])
    lay_out_in_blocks(module)
    assert module[0] is projection


def test_blocks_stream() -> None:
    layers = nn.ModuleList(nn.ModuleList([layer(256, 512, torch.float32)]) for _ in range(3))
    module = nn.ModuleList([layers])
    lay_out_in_blocks(module)
    handle = ModelHandle("blocks", module, "sequence")
    assert handle.size_bytes == 3 * 256 * 512 * 4
    assert handle.minimum_bytes(1) < handle.size_bytes


def test_without_one_dnn_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    projection = layer(64, 96, torch.float32)
    x = torch.ones(1, 64)
    monkeypatch.setattr(products, "_has_one_dnn", lambda: False)
    assert torch.equal(projection(x), functional.linear(x, projection.weight))
