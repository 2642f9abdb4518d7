"""Linear layers give what `functional.linear` gives, whichever way they take."""

from __future__ import annotations

import copy
import platform
import weakref
from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn import functional

from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.nn import products
from mizuoto_runtime.nn.linear import BlockedLinear, Linear, PackedLinear, lay_out_in_blocks, pack

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3}


@pytest.fixture(autouse=True)
def small_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 0)


def layer(width: int, outputs: int, dtype: torch.dtype, *, bias: bool = False) -> Linear:
    rng = torch.Generator().manual_seed(width + outputs)
    made = Linear(width, outputs, bias=bias).to(dtype).requires_grad_(False)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=rng) / width**0.5)
    return made


def expected(projection: Linear, x: torch.Tensor) -> torch.Tensor:
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
    for kind in (projection, BlockedLinear.of(projection)):
        with torch.inference_mode():
            product = kind(x)
        assert product.shape == (rows, outputs) and product.dtype == dtype
        torch.testing.assert_close(product.double(), expected(projection, x), atol=TOLERANCE[dtype], rtol=1e-2)


def test_each_row_is_what_it_is_alone() -> None:
    blocked = BlockedLinear.of(layer(64, 96, torch.bfloat16))
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(blocked(x), torch.cat([blocked(row[None]) for row in x]))


def test_only_projections_of_known_dtypes_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = nn.ModuleDict(
        {"small": layer(8, 8, torch.float16), "wide": layer(8, 8, torch.bfloat16), "other": nn.Linear(8, 8)}
    )
    slow, fast = made, copy.deepcopy(made)
    monkeypatch.setattr(products, "BLOCKED_DTYPES", frozenset({torch.bfloat16}))
    lay_out_in_blocks(fast)
    assert [type(part) for part in fast.values()] == [Linear, BlockedLinear, nn.Linear]
    monkeypatch.setattr(products, "BLOCKED_DTYPES", frozenset())
    lay_out_in_blocks(slow)
    assert [type(part) for part in slow.values()] == [Linear, Linear, nn.Linear]


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
    monkeypatch.setattr(products, "FUSED_PRODUCT", None)
    assert torch.equal(projection(x), functional.linear(x, projection.weight))


@pytest.mark.parametrize(
    ("machine", "wanted"), [("x86_64", True), ("AMD64", True), ("aarch64", False), ("arm64", False)]
)
def test_one_dnn_is_called_on_x86_alone(monkeypatch: pytest.MonkeyPatch, machine: str, wanted: bool) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert products._has_onednn() is wanted


@pytest.mark.parametrize("gelu", [None, "none", "tanh"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_fused_product_is_the_plain_one(gelu: Literal["none", "tanh"] | None, bias: bool) -> None:
    fused = Linear(40, 24, bias=bias, gelu=gelu).requires_grad_(False)
    rng = torch.Generator().manual_seed(3)
    for parameter in fused.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=rng) / 6)
    x = torch.randn(2, 7, 80, generator=rng)[..., ::2]
    plain = functional.linear(x.double(), fused.weight.double(), fused.bias.double() if bias else None)
    expected = plain if gelu is None else functional.gelu(plain, approximate=gelu)
    assert (fused(x) - expected).abs().max() < 1e-5


def test_a_layer_with_gelu_is_not_laid_out() -> None:
    module = nn.ModuleList([Linear(64, 96, bias=False, gelu="none").to(torch.bfloat16)])
    lay_out_in_blocks(module)
    assert isinstance(module[0], Linear)


def test_blocks_take_any_number_of_dimensions() -> None:
    blocked = BlockedLinear.of(layer(64, 96, torch.float32, bias=True))
    x = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(blocked(x), blocked(x.flatten(0, 1)).view(2, 3, 96))


PACKED = sorted(products.PACKED_DTYPES, key=str)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("gelu", [None, "none", "tanh"])
@pytest.mark.parametrize(
    ("width", "outputs", "bias"),
    [(64, 96, False), (96, 256, True), (7, 33, True), (16, 1, False), (1000, 1024, True)],
)
def test_a_packed_layer_gives_the_same_to_the_last_bit(
    dtype: torch.dtype, gelu: Literal["none", "tanh"] | None, width: int, outputs: int, bias: bool
) -> None:
    projection = layer(width, outputs, dtype, bias=bias)
    projection.gelu = gelu
    packed = PackedLinear(projection)
    for rows in (1, 2, 4, 5, 16, 100, 600):
        x = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(rows)).to(dtype)
        with torch.inference_mode():
            assert torch.equal(packed(x), projection(x))


@pytest.mark.parametrize("dtype", PACKED)
def test_a_packed_layer_can_be_copied(dtype: torch.dtype) -> None:
    module = nn.Sequential(PackedLinear(layer(64, 96, dtype, bias=True)))
    twin = copy.deepcopy(module)
    x = torch.ones(5, 64, dtype=dtype)
    with torch.inference_mode():
        assert torch.equal(twin(x), module(x))
        bias = twin[0].bias.zero_()
        assert not torch.equal(bias, module[0].bias)


@pytest.mark.skipif(torch.bfloat16 not in products.PACKED_DTYPES, reason="oneDNN multiplies no bfloat16 numbers here")
def test_what_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 64 * 96 * 2)
    monkeypatch.setattr(products, "PACKED_DTYPES", frozenset({torch.float32, torch.bfloat16}))
    large, small, tied = (layer(64, outputs, torch.bfloat16, bias=True) for outputs in (96, 95, 128))
    embedding = nn.Embedding(128, 64)
    embedding.weight = tied.weight
    module = nn.ModuleDict(
        {
            "large": nn.ModuleList([large]),
            "small": small,
            "wide": layer(64, 96, torch.float32),
            "many rows": nn.ModuleList([layer(64, 96, torch.float32)]),
            "tied": tied,
            "embedding": embedding,
            "in blocks": BlockedLinear.of(layer(64, 96, torch.bfloat16)),
        }
    )
    size_bytes = ModelHandle("before", module, "oneshot").size_bytes
    let_go: list[torch.Tensor] = []
    pack(module, let_go.append, many_rows=[module["many rows"]])
    kinds = [type(part) for part in module.values()]
    assert kinds == [nn.ModuleList, Linear, Linear, nn.ModuleList, Linear, nn.Embedding, BlockedLinear]
    assert isinstance(module["large"][0], PackedLinear) and module["large"][0].bias is large.bias
    assert isinstance(module["many rows"][0], PackedLinear)
    assert len(let_go) == 2 and let_go[0] is large.weight
    assert ModelHandle("after", module, "oneshot").size_bytes == size_bytes


def test_a_weight_that_hangs_twice_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "BLOCKED_DTYPES", frozenset(products.BLOCKS))
    tied, twice, free = (layer(64, 96, torch.bfloat16) for _ in range(3))
    module = nn.ModuleDict({"tied": tied, "twice": twice, "again": twice, "free": free})
    module.register_parameter("table", tied.weight)
    lay_out_in_blocks(module)
    assert [type(part) for part in module._modules.values()] == [Linear, Linear, Linear, BlockedLinear]


def test_a_layer_is_gone_before_the_next_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "BLOCKED_DTYPES", frozenset(products.BLOCKS))
    gone: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def let_go(weight: torch.Tensor) -> None:
        alive.append(sum(each() is not None for each in gone))
        gone.append(weakref.ref(weight))

    lay_out_in_blocks(nn.ModuleList(layer(64, 96, torch.float32) for _ in range(4)), let_go)
    assert alive == [0, 0, 0, 0]


def test_where_it_gains_nothing_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "PACKED_DTYPES", frozenset({torch.float32}))
    module = nn.ModuleList([layer(64, 96, torch.bfloat16)])
    pack(module, many_rows=module)
    assert isinstance(module[0], Linear)


@pytest.mark.skipif(products.FUSED_PRODUCT is None, reason="this torch has no oneDNN")
def test_mkl_gets_what_it_is_faster_at(monkeypatch: pytest.MonkeyPatch) -> None:
    product, fused = products.FUSED_PRODUCT, list[int]()

    def noted(x: torch.Tensor, *more: object) -> torch.Tensor:
        fused.append(len(x))
        made: torch.Tensor = product(x, *more)
        return made

    monkeypatch.setattr(products, "FUSED_PRODUCT", noted)
    projection, many, fewer = layer(64, 96, torch.float32), products.MKL_ROWS, products.MKL_ROWS - 1
    made = {}
    for fast in (False, True):
        monkeypatch.setattr(products, "FAST_MKL", fast)
        made[fast] = [projection(torch.ones(rows, 64)) for rows in (many, fewer, products.FEW_ROWS)]
    assert fused == [many, fewer, products.FEW_ROWS, fewer]
    torch.testing.assert_close(made[True], made[False], atol=1e-5, rtol=0)
    projection.gelu = "tanh"
    projection(torch.ones(many, 64))
    assert fused[-1] == many


def test_on_a_cpu_a_bag_is_used_where_nothing_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    for fast, expected in ((True, {torch.bfloat16}), (False, {torch.bfloat16, torch.float32})):
        monkeypatch.setattr(products, "FAST_MKL", fast)
        assert products._blocked_dtypes() == expected
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    monkeypatch.setattr(products, "FUSED_DTYPES", (torch.float32, torch.bfloat16))
    assert products._blocked_dtypes() == {torch.float32}
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert products._blocked_dtypes() == frozenset()


@pytest.mark.parametrize("rows", [1, 2, 4, 9, 400])
def test_a_large_weight_gives_the_same_at_any_address(rows: int) -> None:
    """As it may lie in a mapped file; small ones are copied."""
    projection = layer(1024, 512, torch.float32)
    size_bytes = projection.weight.nbytes
    x = torch.randn(rows, 1024, generator=torch.Generator().manual_seed(rows))
    expected = projection(x)
    for offset in (4, 8, 20, 32):
        room = torch.empty(size_bytes + 64 + offset, dtype=torch.uint8)
        start = -room.data_ptr() % 64 + offset
        odd = copy.deepcopy(projection)
        odd.weight.data = room[start : start + size_bytes].view(torch.float32).view(512, 1024)
        odd.weight.data.copy_(projection.weight)
        assert torch.equal(odd(x), expected)
