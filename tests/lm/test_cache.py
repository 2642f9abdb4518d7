"""Both caches hold the same numbers, survive failures, and take no more memory than they are estimated at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mizuoto_runtime.lm.cache import (
    BufferCache,
    CacheKind,
    DynamicCache,
    KvCache,
    new_cache,
    peak_bytes,
    position_bytes,
    room_for,
)
from tests.memory.live_bytes import LiveBytes

HEADS, KV_HEADS = 6, 2
STEPS = (5, 1, 1, 1, 2, 1, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 1, 1)
FIRST = 4


def both(layers: int = 2) -> tuple[DynamicCache, BufferCache]:
    return DynamicCache(layers), BufferCache(layers, first_positions=FIRST)


def projected(rows: int, positions: int, head_dim: int, dtype: torch.dtype, rng: torch.Generator) -> tuple[Tensor, ...]:
    """Queries, keys and values as a model makes them: views of one projection, heads and positions exchanged."""
    packed = torch.randn(rows, positions, HEADS + 2 * KV_HEADS, head_dim, generator=rng).to(dtype).transpose(1, 2)
    return packed.split([HEADS, KV_HEADS, KV_HEADS], dim=1)


def attended(cache: KvCache, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    keys, values = cache.append(layer, keys, values)
    new, all_ = queries.shape[2], keys.shape[2]
    mask = torch.ones(new, all_, dtype=torch.bool).tril(all_ - new)
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)


def steps(rows: int, head_dim: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    rng = torch.Generator().manual_seed(7)
    for positions in STEPS:
        yield projected(rows, positions, head_dim, dtype, rng)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "head_dim", "inference"), [(1, 64, True), (3, 32, False), (2, 20, True)])
def test_both_kinds_give_the_same_attention_step_by_step(
    rows: int, head_dim: int, dtype: torch.dtype, inference: bool
) -> None:
    dynamic, static = both()
    with torch.inference_mode(inference):
        for queries, keys, values in steps(rows, head_dim, dtype):
            for layer in range(2):
                expected = attended(dynamic, layer, queries + layer, keys + layer, values)
                assert torch.equal(attended(static, layer, queries + layer, keys + layer, values), expected)
    assert dynamic.length_positions == static.length_positions == sum(STEPS)
    assert dynamic.rows == static.rows == rows


def test_one_token_without_a_mask_gives_the_same_attention() -> None:
    dynamic, static = both(1)
    for queries, keys, values in steps(2, 64, torch.float32):
        outputs = [
            functional.scaled_dot_product_attention(queries[:, :, -1:], *cache.append(0, keys, values), enable_gqa=True)
            for cache in (dynamic, static)
        ]
        assert torch.equal(*outputs)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_the_cache_holds_what_was_appended(kind: CacheKind) -> None:
    cache, seen = new_cache(kind, 1), []
    for _, keys, values in steps(2, 8, torch.float32):
        held = cache.append(0, keys, values)
        seen.append((keys, values))
        for index, tensor in enumerate(held):
            assert torch.equal(tensor, torch.cat([pair[index] for pair in seen], dim=2))


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 1, 0], [2], [0, 0, 1, 1, 2, 2], torch.tensor([1, 0, 2])])
def test_rows_are_reordered_repeated_and_left_out(order: list[int] | Tensor) -> None:
    for cache in both():
        inputs = list(steps(3, 16, torch.float32))
        for _, keys, values in inputs[:4]:
            for layer in range(2):
                cache.append(layer, keys + layer, values)
        cache.reorder(order)
        assert cache.rows == len(order)
        for layer in range(2):
            _, keys, values = (tensor[order] for tensor in inputs[4])
            held = cache.append(layer, keys + layer, values)
            expected = torch.cat([keys + layer for _, keys, _ in inputs[:5]], dim=2)[order]
            assert torch.equal(held[0], expected)
            assert torch.equal(held[1], torch.cat([values for _, _, values in inputs[:5]], dim=2)[order])


def test_what_is_cropped_is_forgotten_and_what_follows_is_exact() -> None:
    for cache in both(1):
        inputs = list(steps(1, 16, torch.float32))
        for _, keys, values in inputs[:6]:
            cache.append(0, keys, values)
        cache.crop(6)
        _, keys, _ = (tensor[:, :, :3] for tensor in inputs[6])
        kept = torch.cat([keys for _, keys, _ in inputs[:2]], dim=2)
        assert torch.equal(cache.append(0, keys, keys)[0], torch.cat((kept, keys), dim=2))
        with pytest.raises(ValueError, match="holds 9 positions, it can't keep 10"):
            cache.crop(10)


class FailAt(torch.utils._python_dispatch.TorchDispatchMode):
    """Fails the n-th operation that makes a tensor of the cache."""

    MAKING = ("aten::cat", "aten::clone", "aten::empty", "aten::index_select")

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func.name().split(".")[0] in self.MAKING:
            self.left -= 1
            if self.left == 0:
                raise MemoryError
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("number", range(1, 7))
def test_a_step_that_failed_in_any_layer_can_be_run_again(number: int) -> None:
    inputs = list(steps(2, 16, torch.float32))
    for cache in both(3):
        for _, keys, values in inputs[:1]:
            for layer in range(3):
                cache.append(layer, keys, values)
        before = cache.length_positions
        _, keys, values = inputs[6]
        with pytest.raises(MemoryError), FailAt(number):
            for layer in range(3):
                cache.append(layer, keys, values)
        assert cache.length_positions == before
        cache.crop(before)
        for layer in range(3):
            held = cache.append(layer, keys, values)
            assert torch.equal(held[0], torch.cat((inputs[0][1], keys), dim=2))
            assert torch.equal(held[1], torch.cat((inputs[0][2], values), dim=2))


@pytest.mark.parametrize("number", range(1, 5))
def test_a_reorder_that_failed_leaves_nothing_that_could_be_wrong(number: int) -> None:
    for cache in both(2):
        _, keys, values = next(steps(2, 16, torch.float32))
        for layer in range(2):
            cache.append(layer, keys, values)
        with pytest.raises(MemoryError), FailAt(number):
            cache.reorder([1, 0])
        assert (cache.length_positions, cache.rows, cache.held_bytes) == (0, 0, 0)


def test_keys_that_do_not_fit_are_refused_and_change_nothing() -> None:
    for cache in both(1):
        _, keys, values = next(steps(2, 16, torch.float32))
        cache.append(0, keys, values)
        for wrong in (keys[:1], keys[:, :1], keys[..., :8], keys.half(), keys.to("meta")):
            with pytest.raises(ValueError, match="can't be added; reset it first"):
                cache.append(0, wrong, wrong)
        with pytest.raises(ValueError, match="must be alike"):
            cache.append(0, keys, values[:1])
        assert cache.length_positions == keys.shape[2]
        cache.reset()
        assert cache.append(0, keys[:1], values[:1])[0].shape[0] == 1


def test_a_cache_keeps_no_projection_alive() -> None:
    with LiveBytes() as live:
        for cache in both(1):
            before = live.current_bytes
            queries, keys, values = projected(1, FIRST, 16, torch.float32, torch.Generator())
            cache.append(0, keys, values)
            del queries, keys, values
            held = FIRST * position_bytes(KV_HEADS, 16, torch.float32)
            assert live.current_bytes - before == cache.held_bytes == held


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize(("prompt", "generated"), [(3, 0), (3, 1), (30, 35), (64, 1), (1, 70), (100, 29)])
@pytest.mark.parametrize(("rows", "dtype"), [(1, torch.float32), (4, torch.bfloat16)])
def test_the_estimate_is_the_measured_peak(
    kind: CacheKind, prompt: int, generated: int, rows: int, dtype: torch.dtype
) -> None:
    layers, head_dim, first = 24, 8, 32
    cache = DynamicCache(layers) if kind == "dynamic" else BufferCache(layers, first_positions=first)
    at_prompt = torch.zeros(rows, KV_HEADS, prompt, head_dim, dtype=dtype)
    one = torch.zeros(rows, KV_HEADS, 1, head_dim, dtype=dtype)
    order = torch.arange(rows).flip(0)
    with LiveBytes() as live:
        for new in (at_prompt, *[one] * generated):
            for layer in range(layers):
                cache.append(layer, new, new)
        cache.reorder(order)
    positions = prompt + generated
    each = position_bytes(KV_HEADS, head_dim, dtype)
    estimate = peak_bytes(each, layers, positions, kind, rows, first)
    assert 0.95 * estimate <= live.peak_bytes <= estimate
    held = positions if kind == "dynamic" else room_for(positions, first)
    assert live.current_bytes == cache.held_bytes == each * layers * rows * held


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 4), (4, 1)])
def test_reordering_stays_within_the_estimate_of_the_larger_batch(before: int, after: int) -> None:
    positions = 2 * FIRST
    for cache in both(8):
        order = torch.zeros(after, dtype=torch.long)
        one = torch.zeros(before, KV_HEADS, 1, 8)
        with LiveBytes() as live:
            for _ in range(positions):
                for layer in range(8):
                    cache.append(layer, one, one)
            live.peak_bytes = 0
            cache.reorder(order)
        each = position_bytes(KV_HEADS, 8, torch.float32)
        assert live.peak_bytes <= peak_bytes(each, 8, positions, cache.kind, max(before, after), FIRST)


def test_an_append_to_a_static_cache_with_room_makes_no_tensor_of_the_layers_size() -> None:
    cache = BufferCache(1)
    one = torch.zeros(1, KV_HEADS, 1, 64)
    cache.append(0, one, one)
    with LiveBytes() as live:
        for _ in range(200):
            cache.append(0, one, one)
    assert live.peak_bytes == 0


def test_one_position_in_bytes() -> None:
    assert position_bytes(8, 128, torch.bfloat16) == 4096
    assert peak_bytes(4096, 28, 1000, "dynamic", 2) == 4096 * 2 * 1000 * 29
    assert peak_bytes(4096, 28, 1000, "static", 2) == 4096 * 2 * (1024 * 28 + 512)
    assert peak_bytes(4096, 28, 100, "static", 1) == 4096 * (256 * 28 + 128)
