"""Attention in pieces is as exact as torch's, whatever the size of the scores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mizuoto_runtime.nn import attention
from mizuoto_runtime.nn.attention import attend, attention_bytes
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def on_any_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_faster_in_pieces", lambda: True)


def drawn(rows: int, heads: int, positions: int, width: int, *, loudness: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """As layers give them: positions before heads in memory."""
    rng = torch.Generator().manual_seed(positions)
    queries, keys, values = (
        torch.randn(rows, positions, heads, width, generator=rng).bfloat16().transpose(1, 2) for _ in range(3)
    )
    return queries * loudness, keys + loudness * keys[:, :, :1], values


def error(made: Tensor, parts: tuple[Tensor, Tensor, Tensor]) -> float:
    queries, keys, values = (part.double() for part in parts)
    expected = functional.scaled_dot_product_attention(queries, keys, values)
    return float((made.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("loudness", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize(
    ("rows", "heads", "positions", "width"), [(2, 16, 562, 64), (1, 3, 128, 32), (1, 5, 257, 80), (2, 1, 300, 64)]
)
def test_pieces_are_nearly_as_exact(rows: int, heads: int, positions: int, width: int, loudness: float) -> None:
    parts = drawn(rows, heads, positions, width, loudness=loudness)
    made = attend(*parts)
    assert made.shape == (rows, heads, positions, width) and made.dtype == torch.bfloat16
    assert error(made, parts) < 1.5 * error(functional.scaled_dot_product_attention(*parts), parts) + 4e-3


def test_the_shift_is_what_makes_it_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = drawn(1, 4, 300, 64, loudness=3.0)
    shifted = error(attend(*parts), parts)
    monkeypatch.setattr(torch, "neg", lambda x, out: out.zero_())
    assert error(attend(*parts), parts) > 2 * shifted


def test_a_row_is_what_it_is_alone() -> None:
    parts = drawn(2, 4, 200, 64)
    alone = torch.cat([attend(*(part[row : row + 1] for part in parts)) for row in range(2)])
    assert torch.equal(attend(*parts), alone)


def test_short_or_masked_or_float32_is_torchs_own() -> None:
    short = drawn(1, 2, attention.LEAST_POSITIONS - 1, 32)
    assert torch.equal(attend(*short), functional.scaled_dot_product_attention(*short))
    queries, keys, values = drawn(1, 2, 200, 32)
    mask = (torch.arange(200) < 150)[None]
    masked = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    assert torch.equal(attend(queries, keys, values, mask), masked)
    wide = (queries.float(), keys.float(), values.float())
    assert torch.equal(attend(*wide), functional.scaled_dot_product_attention(*wide))


@pytest.mark.parametrize("positions", [128, 562, 1500])
def test_working_memory_is_as_estimated(positions: int) -> None:
    parts = drawn(2, 8, positions, 64)
    with LiveBytes() as live:
        made = attend(*parts)
    estimate = attention_bytes(2, 8, positions, 64, torch.bfloat16, CPU)
    held = live.peak_bytes - made.nbytes
    assert 0.5 * estimate < held <= estimate
    assert attention_bytes(2, 8, positions, 64, torch.float32, CPU) == 0
