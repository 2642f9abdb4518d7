"""The text encoder of VITS: a transformer whose attention knows relative positions within a small window.

Arithmetic: VITS, section 2.2 and appendix A (https://arxiv.org/abs/2106.06103); relative positions after Shaw et al.
(https://arxiv.org/abs/1803.02155). One sentence at a time, so nothing is masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .architecture import TextEncoderConfig
from .layers import ChannelNorm, Conv, channels_last, embedding


class RelativeAttention(nn.Module):
    """Self-attention in which each distance of up to `window` positions has a key and a value of its own."""

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        channels, self.heads, self.window = config.channels, config.heads, config.window
        head_channels, offsets = channels // config.heads, 2 * config.window + 1
        self.query = Conv(channels, channels)
        self.key = Conv(channels, channels)
        self.value = Conv(channels, channels)
        self.output = Conv(channels, channels)
        self.relative_keys = nn.Parameter(torch.empty(1, offsets, head_channels))
        self.relative_values = nn.Parameter(torch.empty(1, offsets, head_channels))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._heads(part(x)) for part in (self.query, self.key, self.value))
        query = query / math.sqrt(query.shape[2])
        scores = query @ key.transpose(1, 2)
        self._add_near(scores, query @ self.relative_keys.transpose(1, 2))
        weights = torch.softmax(scores, dim=-1)
        mixed = weights @ value
        mixed += self._near(weights) @ self.relative_values
        output: Tensor = self.output(channels_last(mixed.transpose(1, 2).reshape(1, x.shape[1], -1)))
        return output

    def _heads(self, x: Tensor) -> Tensor:
        """(1, channels, 1, length) as (heads, length, channels per head)."""
        return x.reshape(self.heads, -1, x.shape[3]).transpose(1, 2)

    def _offsets(self, length: int) -> list[tuple[int, slice]]:
        """Each distance key − query that occurs, and the queries that have a key at that distance."""
        reach = min(self.window, length - 1)
        return [(far, slice(max(0, -far), length - max(0, far))) for far in range(-reach, reach + 1)]

    def _add_near(self, scores: Tensor, near: Tensor) -> None:
        """Add `near` (heads, length, offsets) along the diagonals of `scores` (heads, length, length)."""
        for far, queries in self._offsets(scores.shape[1]):
            scores.diagonal(far, 1, 2).add_(near[:, queries, self.window + far])

    def _near(self, weights: Tensor) -> Tensor:
        """The diagonals of `weights` (heads, length, length) as (heads, length, offsets)."""
        near = weights.new_zeros(*weights.shape[:2], 2 * self.window + 1)
        for far, queries in self._offsets(weights.shape[1]):
            near[:, queries, self.window + far] = weights.diagonal(far, 1, 2)
        return near


class EncoderLayer(nn.Module):
    """Attention and two convolutions, each added to its input and then normalised."""

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.attention = RelativeAttention(config)
        self.attention_norm = ChannelNorm(config.channels)
        self.expand = Conv(config.channels, config.filter_channels, config.kernel_size)
        self.contract = Conv(config.filter_channels, config.channels, config.kernel_size)
        self.output_norm = ChannelNorm(config.channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x))
        output: Tensor = self.output_norm(x + self.contract(functional.relu_(self.expand(x))))
        return output


class TextEncoder(nn.Module):
    """Symbols → hidden states, and the mean and log standard deviation of the latents before they are stretched."""

    def __init__(self, symbols: int, latent_channels: int, config: TextEncoderConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.channels)
        self.embedding = embedding(symbols, config.channels)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.statistics = Conv(config.channels, 2 * latent_channels)

    def forward(self, ids: Tensor, check: Callable[[], None]) -> tuple[Tensor, Tensor, Tensor]:
        """ids: int64 (1, length). `check` raises to cancel; called before each layer.

        Returns (1, channels, 1, length), then the mean and the log scale, both (latent channels, length).
        """
        x = channels_last((self.embedding(ids) * self.scale).transpose(1, 2))
        for layer in self.layers:
            check()
            x = layer(x)
        mean, log_scale = self.statistics(x)[0, :, 0].contiguous().chunk(2)
        return x, mean, log_scale
