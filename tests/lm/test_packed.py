"""Rows of different lengths in one matrix give what each gives alone, and ends what all positions give there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mizuoto_runtime.lm.decoder import DecoderConfig, RmsNorm
from mizuoto_runtime.lm.packed import PackedDecoder, Packing
from mizuoto_runtime.lm.positions import RopeTable
from mizuoto_runtime.seeds import generator

CPU = torch.device("cpu")
LENGTHS, COUNTS = (7, 3, 12), (4, 3, 1)


def decoder(kv_heads: int, activation: str = "silu") -> PackedDecoder:
    config = DecoderConfig(
        width=24,
        inner=40,
        layers=3,
        heads=4,
        kv_heads=kv_heads,
        head_dim=8,
        norm_eps=1e-6,
        rope_theta=10_000,
        activation=activation,
    )
    made = PackedDecoder(config).requires_grad_(False)
    rng = generator(0)
    weights = {name: torch.randn(shell.shape, generator=rng) * 0.3 for name, shell in made.state_dict().items()}
    made.load_state_dict(weights)
    return made


def run(made: PackedDecoder, x: Tensor, lengths: tuple[int, ...], counts: tuple[int, ...]) -> Tensor:
    packing = Packing.of(lengths, RopeTable(made.config, x.dtype, CPU))
    return made(x, packing, packing.ends(counts), lambda: None)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_packed_rows_are_those_alone(kv_heads: int) -> None:
    made = decoder(kv_heads)
    x = torch.randn(sum(LENGTHS), 24, generator=generator(1))
    together = run(made, x, LENGTHS, COUNTS).split(COUNTS)
    for row, length, count, packed in zip(x.split(LENGTHS), LENGTHS, COUNTS, together, strict=True):
        alone = run(made, row, (length,), (length,))
        assert torch.allclose(packed, alone[-count:], atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_each_position_sees_all_of_its_row(activation: str) -> None:
    """Against attention written out, head by head."""
    made = decoder(2, activation)
    x = torch.randn(9, 24, generator=generator(2))
    table = RopeTable(made.config, x.dtype, CPU).span(0, 9)
    wanted = x
    for layer in made.layers:
        normed = layer.input_layernorm(wanted)
        attention = layer.self_attn
        queries, keys = attention.queries(normed, 9, table)[0], attention.keys(normed, 9, table)[0]
        values = attention.values(normed, 9)[0]
        heads = []
        for head in range(4):
            scores = queries[:, head] @ keys[:, head // 2].T / 8**0.5
            heads.append(scores.softmax(-1) @ values[:, head // 2])
        wanted = wanted + attention.o_proj(torch.cat(heads, dim=1))
        normed = layer.post_attention_layernorm(wanted)
        gate = layer.mlp.activation(layer.mlp.gate_proj(normed))
        wanted = wanted + layer.mlp.down_proj(gate * layer.mlp.up_proj(normed))
    assert torch.allclose(run(made, x, (9,), (9,)), made.norm(wanted), atol=1e-4)


def test_what_is_given_is_not_changed() -> None:
    x = torch.randn(sum(LENGTHS), 24, generator=generator(1))
    before = x.clone()
    run(decoder(2), x, LENGTHS, COUNTS)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_normed_in_float32(dtype: torch.dtype) -> None:
    x = (torch.randn(50, 64, generator=generator(3)) * 5).to(dtype)
    norm = RmsNorm(64, 1e-6).to(dtype)
    norm.weight.data = torch.rand(64, generator=generator(4)).to(dtype)
    before = x.clone()
    wanted = norm.weight * functional.rms_norm(x.float(), (64,), None, 1e-6).to(dtype)
    made = norm(x).detach()
    assert (made == wanted).float().mean() > 0.99
    assert torch.allclose(made.float(), wanted.float(), rtol=1e-2)
    assert torch.equal(x, before)
