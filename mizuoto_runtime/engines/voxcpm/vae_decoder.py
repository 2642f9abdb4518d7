"""The audio VAE's decoder: latents → samples.

Arithmetic: DAC's decoder (Kumar et al., https://arxiv.org/abs/2306.06546, section 3), causal; in the second
architecture each block's input is scaled and shifted by what belongs to the sample rate. Upstream:
voxcpm/modules/audiovae of voxcpm 2.0.3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...errors import InputError
from .vae_config import VaeConfig
from .vae_layers import (
    KERNEL,
    Check,
    Dense,
    Depthwise,
    Matrix,
    Past,
    Snake,
    Units,
    Windows,
    empty,
    keep,
    nothing,
    room,
    tile_elements,
    tiles,
)

APART = 2
"""Blocks that are computed one after the other, for a whole tile; the others together, in smaller tiles."""
TILE_FRAMES = 256
SMALL_TILE_FRAMES = 16
"""Where memory is short. Every tile needs all weights, so it pays only there."""


class Input(nn.Module):
    """Latents → the first block's channels."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        channels = config.decoder_dim
        self.dilated = Depthwise(config.latent_dim) if config.depthwise else Dense(config.latent_dim, channels)
        self.pointwise = Matrix(config.latent_dim, channels) if config.depthwise else None
        self.channels = channels

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """x: (length, latent) → (length, channels)."""
        padded = room(self, self.dilated.reach, x, past)
        padded[self.dilated.reach :] = x
        keep(self, self.dilated.reach, padded, past)
        y: Tensor = self.dilated(padded)
        if self.pointwise is None:
            return y
        out = x.new_empty(len(x), self.channels)
        self.pointwise(y, out)
        return out


class Upsampling(nn.Module):
    """A snake and a transposed convolution over two rows: `rate` times as many."""

    def __init__(self, inputs: int, outputs: int, rate: int) -> None:
        super().__init__()
        self.outputs, self.rate = outputs, rate
        self.snake = Snake(inputs)
        self.windows = Windows(inputs, rate * outputs, 2, 1, outputs)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """(length, inputs) → (length · rate, outputs)."""
        padded = room(self, 1, x, past)
        self.snake(x, padded[1:])
        keep(self, 1, padded, past)
        out = x.new_empty(len(x), self.rate * self.outputs)
        self.windows(padded, out)
        return out.view(-1, self.outputs)


class Block(nn.Module):
    """Upsampling, then residual units."""

    def __init__(self, inputs: int, outputs: int, rate: int, *, depthwise: bool) -> None:
        super().__init__()
        self.rate, self.outputs = rate, outputs
        self.upsampling = Upsampling(inputs, outputs, rate)
        self.units = Units(outputs, depthwise=depthwise)

    def forward(self, x: Tensor, past: Past, check: Check) -> Tensor:
        """(length, inputs) → (length · rate, outputs)."""
        y: Tensor = self.upsampling(x, past)
        self.units(y, past, check)
        return y


class Output(nn.Module):
    """A snake, and a convolution to one channel."""

    STREAMABLE = True

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.snake = Snake(inputs)
        self.taps = empty(KERNEL, inputs)
        self.bias = empty(1)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """(length, inputs) → (length), between −1 and 1."""
        reach = KERNEL - 1
        padded = room(self, reach, x, past)
        self.snake(x, padded[reach:])
        keep(self, reach, padded, past)
        products = padded @ self.taps.T
        diagonals = products.as_strided((len(x), KERNEL), (KERNEL, KERNEL + 1))
        return diagonals.sum(1).add_(self.bias).tanh_()


class Tail(nn.Module):
    """The last blocks and the output, computed together: they are small, but what lies between them is long."""

    def __init__(self, blocks: list[Block], channels: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.output = Output(blocks[-1].outputs if blocks else channels)
        self.rate, self.widest = 1, channels
        for block in blocks:
            self.rate *= block.rate
            self.widest = max(self.widest, self.rate * block.outputs)

    def tile_length(self, device: torch.device) -> int:
        """Rows of the input that are computed at once."""
        return max(1, tile_elements(device) // self.widest)

    def forward(self, x: Tensor, out: Tensor, past: Past, check: Check) -> None:
        """x: (length, channels). out: (length · rate) samples, which are written."""
        for start, end in tiles(len(x), self.tile_length(x.device)):
            check()
            y = x[start:end]
            for block in self.blocks:
                y = block(y, past, check)
            out[start * self.rate : end * self.rate] = self.output(y, past)


class VaeDecoder(nn.Module):
    """Latents → samples at the output's rate, in the weights' dtype: float32 as loaded."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.config = config
        widths = config.decoder_widths
        blocks = [
            Block(widths[stage], widths[stage + 1], rate, depthwise=config.depthwise)
            for stage, rate in enumerate(config.decoder_rates)
        ]
        self.input = Input(config)
        self.blocks = nn.ModuleList(blocks[:APART])
        self.tail = Tail(blocks[APART:], widths[min(APART, len(blocks))])

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        units: list[nn.Module] = [self.input]
        for block in self.blocks:
            assert isinstance(block, Block)
            units += [*block.upsampling.windows.parts, block.units]
        return [*units, self.tail]

    def decode(self, latents: Tensor, check: Check = nothing, *, tile_frames: int = TILE_FRAMES) -> Tensor:
        """latents: float32 (frames, latent_dim) on the decoder's device → float32 (frames · output_hop), −1 to 1.

        `check` raises to cancel; it is called for each tile. tile_frames: how many frames are decoded at once; fewer
        need less memory, and change nothing but the last bits. InputError for latents of another shape.
        """
        config, dtype = self.config, self.tail.output.bias.dtype
        if latents.ndim != 2 or latents.shape[1] != config.latent_dim or latents.dtype != dtype:
            shape = f"{tuple(latents.shape)} {latents.dtype}"
            raise InputError(f"the latents are {shape}; (frames, {config.latent_dim}) {dtype} is needed")
        past: Past = {}
        samples = latents.new_empty(len(latents) * config.output_hop)
        for start, end in tiles(len(latents), tile_frames):
            x = self.input(latents[start:end], past)
            for block in self.blocks:
                check()
                x = block(x, past, check)
            self.tail(x, samples[start * config.output_hop : end * config.output_hop], past, check)
        return samples
