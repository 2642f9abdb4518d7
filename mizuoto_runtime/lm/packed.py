"""The decoder's layers without a direction, over rows of different lengths at once: each row sees all of itself.

The rows lie one after another in a matrix, without padding, so a linear layer reads its weight once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .decoder import DecoderConfig, HeadProjections, Mlp, RmsNorm
from .positions import Rope, RopeTable


@dataclass(frozen=True)
class Packing:
    """Where the rows lie, each counting its positions from 0. rope: of all positions, (1, total, 1, head_dim)."""

    lengths: tuple[int, ...]
    rope: Rope

    @classmethod
    def of(cls, lengths: Sequence[int], table: RopeTable) -> Packing:
        spans = [table.span(0, length) for length in lengths]
        cos = torch.cat([span.cos for span in spans], dim=1)
        return cls(tuple(lengths), Rope(cos, torch.cat([span.sin for span in spans], dim=1)))

    @property
    def total(self) -> int:
        return sum(self.lengths)

    def ends(self, counts: Sequence[int]) -> Ends:
        """The last `counts[row]` positions of each row."""
        places, end = [], 0
        for length, count in zip(self.lengths, counts, strict=True):
            end += length
            places.append(torch.arange(end - count, end))
        index = torch.cat(places).to(self.rope.cos.device)
        return Ends(tuple(counts), index, Rope(self.rope.cos[:, index], self.rope.sin[:, index]))


@dataclass(frozen=True)
class Ends:
    """Some last positions of each row: how many, which of the matrix's rows they are, and their rotations."""

    counts: tuple[int, ...]
    index: Tensor
    rope: Rope


class PackedAttention(HeadProjections):
    def forward(self, x: Tensor, packing: Packing, ends: Ends | None) -> Tensor:
        """(total, width) → (total, width), or those of `ends` only."""
        asking, rope, counts = (x, packing.rope, packing.lengths)
        if ends is not None:
            asking, rope, counts = x[ends.index], ends.rope, ends.counts
        queries = _rows(self.queries(asking, len(asking), rope), counts)
        keys = _rows(self.keys(x, len(x), packing.rope), packing.lengths)
        values = _rows(self.values(x, len(x)), packing.lengths)
        return self.output(torch.cat([self._mixed(*row) for row in zip(queries, keys, values, strict=True)]))

    def _mixed(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Of one row: (positions, heads, head_dim) each, the result too.

        All heads that share keys ask as one, one after the other's positions: without a direction that is the same.
        """
        asked = queries.view(len(queries), self.kv_heads, -1, self.head_dim).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(
            asked.flatten(1, 2)[None], keys.transpose(0, 1)[None], values.transpose(0, 1)[None]
        )
        return mixed[0].view(asked.shape).permute(2, 0, 1, 3).flatten(1, 2)


def _rows(x: Tensor, lengths: Sequence[int]) -> tuple[Tensor, ...]:
    """(1, total, heads, head_dim) → (length, heads, head_dim) of each row."""
    rows: tuple[Tensor, ...] = x[0].split(lengths)  # type: ignore[no-untyped-call]
    return rows


class PackedMlp(Mlp):
    """For inference: large tensors are used again, since fresh ones cost the time in which the system gives them."""

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        activated = functional.silu(gate, inplace=True) if self.activation is functional.silu else self.activation(gate)
        projected: Tensor = self.down_proj(activated.mul_(self.up_proj(x)))
        return projected


class PackedLayer(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.width, config.norm_eps)
        self.self_attn = PackedAttention(config)
        self.post_attention_layernorm = RmsNorm(config.width, config.norm_eps)
        self.mlp = PackedMlp(config)

    def forward(self, x: Tensor, packing: Packing, ends: Ends | None = None) -> Tensor:
        """(total, width) → (total, width), or those of `ends` only."""
        mixed = self.self_attn(self.input_layernorm(x), packing, ends)
        x = mixed + (x if ends is None else x[ends.index])
        added: Tensor = self.mlp(self.post_attention_layernorm(x))
        return added.add_(x)


class PackedDecoder(nn.Module):
    """Embeddings (total, width) of packed rows → hidden states of their `ends`, after the final norm."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(PackedLayer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.width, config.norm_eps)

    def forward(self, x: Tensor, packing: Packing, ends: Ends, check: Callable[[], None]) -> Tensor:
        """The last layer asks for the ends only; those before it need every position. check: raises to cancel."""
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            check()
            x = layer(x, packing, ends if index == last else None)
        normed: Tensor = self.norm(x)
        return normed
