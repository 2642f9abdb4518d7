"""The generator of HiFi-GAN: latents → samples.

Arithmetic: HiFi-GAN, section 2.2 and appendix A.1 (https://arxiv.org/abs/2010.05646).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .architecture import GeneratorConfig
from .layers import Conv, Upsample

SLOPE = 0.1
LAST_SLOPE = 0.01
TILE_ELEMENTS = 1 << 18


class ResidualLayer(nn.Module):
    """One or two convolutions added to their input. The input comes twice: as it is, and activated."""

    def __init__(self, channels: int, kernel_size: int, dilation: int, *, paired: bool) -> None:
        super().__init__()
        self.dilated = Conv(channels, channels, kernel_size, dilation=dilation)
        self.undilated = Conv(channels, channels, kernel_size) if paired else None

    def forward(self, x: Tensor, activated: Tensor) -> Tensor:
        y: Tensor = self.dilated(activated)
        if self.undilated is not None:
            y = self.undilated(functional.leaky_relu_(y, SLOPE))
        return y.add_(x)


class ResidualBlock(nn.Module):
    """Residual layers with one kernel size and several dilations."""

    def __init__(self, channels: int, kernel_size: int, dilations: tuple[int, ...], *, paired: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            ResidualLayer(channels, kernel_size, dilation, paired=paired) for dilation in dilations
        )

    def forward(self, x: Tensor, activated: Tensor, check: Callable[[], None]) -> Tensor:
        for index, layer in enumerate(self.layers):
            check()
            x = layer(x, activated if index == 0 else functional.leaky_relu(x, SLOPE))
        return x


class Stage(nn.Module):
    """Upsampling by a transposed convolution, then the mean of several residual blocks.

    Long inputs are computed in tiles that fit a processor's cache. Each tile is widened by all that its samples depend
    on, so the tiles' borders change nothing but the last bits.
    """

    def __init__(self, config: GeneratorConfig, stage: int) -> None:
        super().__init__()
        self.rate, kernel_size = config.upsample_rates[stage], config.upsample_kernel_sizes[stage]
        channels = config.stage_channels(stage)
        self.upsample = Upsample(config.channels >> stage, channels, kernel_size, self.rate)
        self.blocks = nn.ModuleList(
            ResidualBlock(channels, kernel_size, dilations, paired=config.paired)
            for kernel_size, dilations in zip(config.block_kernel_sizes, config.block_dilations, strict=True)
        )
        self.tile_length = max(1, TILE_ELEMENTS // (channels * self.rate))
        self.halo_length = math.ceil((config.block_reach + kernel_size - 1) / self.rate)

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        """x: (1, channels, 1, length). Returns (1, channels, 1, length × rate)."""
        length = x.shape[3]
        tiles = max(1, round(length / self.tile_length))
        if tiles == 1:
            return self._tile(x, check)
        shape = (1, self.upsample.out_channels, 1, length * self.rate)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        bounds = [length * tile // tiles for tile in range(tiles + 1)]
        for start, end in itertools.pairwise(bounds):
            y[..., start * self.rate : end * self.rate] = self._part(x, start, end, check)
        return y

    def _part(self, x: Tensor, start: int, end: int, check: Callable[[], None]) -> Tensor:
        first, last = max(0, start - self.halo_length), min(x.shape[3], end + self.halo_length)
        y = self._tile(x[..., first:last], check)
        return y[..., (start - first) * self.rate : (end - first) * self.rate]

    def _tile(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        check()
        x = self.upsample(x)
        activated = functional.leaky_relu(x, SLOPE)
        first, *others = self.blocks
        total: Tensor = first(x, activated, check)
        for block in others:
            total += block(x, activated, check)
        return total.div_(len(self.blocks))


class Generator(nn.Module):
    """(1, latent channels, 1, frames) → (samples), float32 between −1 and 1."""

    def __init__(self, latent_channels: int, speaker_channels: int, config: GeneratorConfig) -> None:
        super().__init__()
        self.input = Conv(latent_channels, config.channels, config.kernel_size)
        self.speaker = Conv(speaker_channels, config.channels) if speaker_channels else None
        self.stages = nn.ModuleList(Stage(config, stage) for stage in range(len(config.upsample_rates)))
        last = config.stage_channels(len(config.upsample_rates) - 1)
        self.output = Conv(last, 1, config.post_kernel_size, bias=False)

    def forward(self, z: Tensor, speaker: Tensor | None, check: Callable[[], None]) -> Tensor:
        """`check` raises to cancel; called between convolutions."""
        x = self.input(z)
        if self.speaker is not None:
            x += self.speaker(speaker)
        for stage in self.stages:
            x = stage(functional.leaky_relu_(x, SLOPE), check)
        check()
        return torch.tanh_(self.output(functional.leaky_relu_(x, LAST_SLOPE)))[0, 0, 0]
