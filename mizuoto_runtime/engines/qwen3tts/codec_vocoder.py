"""The last part of the codec's decoder: latents → samples, by transposed convolutions and residual units.

Sequences are rows, (length, channels). Each stage is computed in tiles, from left to right: all of it is causal, so
what a tile needs of those before is carried on, and no sample depends on where tiles end but for the last bits.

Arithmetic: BigVGAN (Lee et al., https://arxiv.org/abs/2206.04658, section 3.2, for SnakeBeta), SoundStream's decoder
(Zeghidour et al., https://arxiv.org/abs/2107.03312, section III), causal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from .codec_config import DecoderConfig
from .codec_layers import Past, empty

KERNEL = 7
DILATIONS = (1, 3, 9)
JOINED_FROM = 2
"""Stages from this one on are computed together, tile by tile: they are small, but what lies between them is long."""
TILE_ELEMENTS = 1 << 18
ACCELERATOR_TILE_ELEMENTS = 1 << 24
REORDERING_PAYS = 16
"""Rows per channel from which a convolution is faster, by up to a half, with its weights in its input's layout."""
SNAKE_EPSILON = 1e-9


class CausalConv(nn.Conv1d):
    """A convolution over rows. reach: rows before the first that it needs."""

    def __init__(
        self, inputs: int, outputs: int, kernel_size: int, *, dilation: int = 1, groups: int = 1, bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, kernel_size, dilation=dilation, groups=groups, bias=bias)
        self.reach = (kernel_size - 1) * dilation

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, padded: Tensor) -> Tensor:
        """padded: (reach + length, inputs) → (length, outputs)."""
        if self.kernel_size[0] == 1:
            return functional.linear(padded, self.weight[:, :, 0], self.bias)
        x, weight = padded.T[None, :, None], self.weight.unsqueeze(2)
        if len(padded) > REORDERING_PAYS * self.in_channels:
            weight = weight.contiguous(memory_format=torch.channels_last)
        y = functional.conv2d(x, weight, self.bias, 1, 0, (1, self.dilation[0]), self.groups)
        return y[0, :, 0].T.contiguous()

    def room(self, x: Tensor, past: Past) -> Tensor:
        """Uninitialised rows for an input as long as `x`, after those that are carried on; zeros at the beginning."""
        padded = x.new_empty(self.reach + len(x), self.in_channels)
        before = past.get(self)
        if before is None:
            padded[: self.reach].zero_()
        else:
            padded[: self.reach] = before
        return padded

    def keep(self, padded: Tensor, past: Past) -> None:
        """Carry on what the next tile needs."""
        past[self] = padded[len(padded) - self.reach :].clone()

    def over(self, x: Tensor, past: Past) -> Tensor:
        """(length, inputs) → (length, outputs)."""
        padded = self.room(x, past)
        padded[self.reach :] = x
        self.keep(padded, past)
        y: Tensor = self(padded)
        return y


class CausalUpsample(nn.ConvTranspose1d):
    """A transposed convolution over rows: `rate` times as many; `taps` of the kernel's windows overlap."""

    def __init__(self, inputs: int, outputs: int, rate: int, taps: int) -> None:
        super().__init__(inputs, outputs, rate * taps, stride=rate)
        self.rate, self.taps = rate, taps

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, x: Tensor, past: Past) -> Tensor:  # type: ignore[override]
        """(length, inputs) → (length · rate, outputs)."""
        spread = (x @ self.weight.flatten(1)).view(len(x), self.out_channels, self.taps, self.rate)
        y = spread[:, :, 0]
        if self.taps > 1:
            late = spread[:, :, 1]
            y[1:] += late[:-1]
            if self in past:
                y[0] += past[self]
            past[self] = late[-1].clone()
        rows: Tensor = y.transpose(1, 2).reshape(-1, self.out_channels)
        return rows if self.bias is None else rows.add_(self.bias)


class Snake(nn.Module):
    """x + sin²(αx) / β, with both by channel and stored as logarithms."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = empty(channels)
        self.beta = empty(channels)

    def forward(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x: (length, channels). out: where the result goes; it may be `x` itself."""
        waves = (x * self.alpha.exp()).sin_().square_()
        return torch.addcmul(x, waves, (self.beta.exp() + SNAKE_EPSILON).reciprocal(), out=out)


class ResidualUnit(nn.Module):
    """A dilated and a pointwise convolution, each activated before, added to their input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.dilated_activation = Snake(channels)
        self.dilated = CausalConv(channels, channels, KERNEL, dilation=dilation)
        self.pointwise_activation = Snake(channels)
        self.pointwise = CausalConv(channels, channels, 1)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        padded = self.dilated.room(x, past)
        self.dilated_activation(x, out=padded[self.dilated.reach :])
        self.dilated.keep(padded, past)
        y = self.dilated(padded)
        sum_: Tensor = self.pointwise(self.pointwise_activation(y, out=y)).add_(x)
        return sum_


class Block(nn.Module):
    """Upsampling, then residual units."""

    def __init__(self, inputs: int, rate: int) -> None:
        super().__init__()
        self.rate, self.channels = rate, inputs // 2
        self.activation = Snake(inputs)
        self.upsample = CausalUpsample(inputs, self.channels, rate, 2)
        self.units = nn.ModuleList(ResidualUnit(self.channels, dilation) for dilation in DILATIONS)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        x = self.upsample(self.activation(x), past)
        for unit in self.units:
            x = unit(x, past)
        return x


class Output(nn.Module):
    """Channels → samples between −1 and 1."""

    rate, channels = 1, 1

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.activation = Snake(inputs)
        self.conv = CausalConv(inputs, 1, KERNEL)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        samples: Tensor = self.conv.over(self.activation(x), past)
        return samples.clamp_(-1, 1)


class Stage(nn.Module):
    """Parts that are computed together, tile by tile."""

    def __init__(self, parts: Sequence[Block | Output]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.rate = math.prod(part.rate for part in parts)
        self.channels = parts[-1].channels
        rate, self.widest = 1, 1
        for part in parts:
            rate *= part.rate
            self.widest = max(self.widest, rate * part.channels)
        self.weights = sum(weight.numel() for weight in self.parts.parameters())

    def tile_length(self, device: torch.device) -> int:
        """Rows of the input that are computed at once: no fewer values than weights, which may stream for each tile."""
        elements = TILE_ELEMENTS if device.type == "cpu" else ACCELERATOR_TILE_ELEMENTS
        return max(1, max(elements, self.weights) // self.widest)

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        """(length, inputs) → (length · rate, channels)."""
        past: Past = {}
        tile_length = self.tile_length(x.device)
        if len(x) <= tile_length:
            return self._tile(x, past, check)
        y = x.new_empty(len(x) * self.rate, self.channels)
        for start in range(0, len(x), tile_length):
            end = min(len(x), start + tile_length)
            y[start * self.rate : end * self.rate] = self._tile(x[start:end], past, check)
        return y

    def _tile(self, x: Tensor, past: Past, check: Callable[[], None]) -> Tensor:
        check()
        for part in self.parts:
            x = part(x, past)
        return x


class Vocoder(nn.Module):
    """(length, latent) → (length · rate) samples between −1 and 1."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input = CausalConv(config.latent, config.channels, KERNEL)
        widths = [config.channels >> stage for stage in range(len(config.upsample_rates) + 1)]
        blocks = [Block(width, rate) for width, rate in zip(widths, config.upsample_rates, strict=False)]
        joined: list[Block | Output] = [*blocks[JOINED_FROM:], Output(widths[-1])]
        self.stages = nn.ModuleList([*(Stage([block]) for block in blocks[:JOINED_FROM]), Stage(joined)])

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        check()
        x = self.input.over(x, {})
        for stage in self.stages:
            x = stage(x, check)
        return x[:, 0]
