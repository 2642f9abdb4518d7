"""The audio VAE's encoder: samples → the means of the latents. Their variances are never used.

Arithmetic: DAC's encoder (Kumar et al., https://arxiv.org/abs/2306.06546, section 3), causal. Upstream:
voxcpm/modules/audiovae of voxcpm 2.0.3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import InputError
from .vae_config import VaeConfig
from .vae_layers import (
    KERNEL,
    Check,
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
"""The last blocks are computed one after the other, for a whole tile; those before together, in smaller tiles."""
TILE_FRAMES = 256
MEAN_KERNEL = 3


class Downsampling(nn.Module):
    """A snake, and a convolution that makes the length `rate` times as short."""

    def __init__(self, inputs: int, outputs: int, rate: int, *, early: bool) -> None:
        super().__init__()
        self.outputs, self.rate = outputs, rate
        self.reach = rate + rate % 2 if early else rate
        self.snake = Snake(inputs)
        self.windows = Windows(inputs, outputs, 2 * rate, rate)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """(length · rate, inputs) → (length, outputs)."""
        padded = room(self, self.reach, x, past)
        self.snake(x, padded[self.reach :])
        keep(self, self.reach, padded, past)
        y: Tensor = self.windows(padded, x.new_empty(len(x) // self.rate, self.outputs))
        return y


class Block(nn.Module):
    """Residual units, then downsampling."""

    def __init__(self, inputs: int, outputs: int, rate: int, *, depthwise: bool, early: bool) -> None:
        super().__init__()
        self.rate, self.outputs = rate, outputs
        self.units = Units(inputs, depthwise=depthwise)
        self.downsampling = Downsampling(inputs, outputs, rate, early=early)

    def forward(self, x: Tensor, past: Past, check: Check) -> Tensor:
        """(length · rate, inputs), which is changed → (length, outputs)."""
        self.units(x, past, check)
        y: Tensor = self.downsampling(x, past)
        return y


class Head(nn.Module):
    """The first convolution and blocks, computed together: they are small, but what lies between them is long."""

    def __init__(self, blocks: list[Block], channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.first = Windows(1, channels, KERNEL, 1)
        self.blocks = nn.ModuleList(blocks)
        self.outputs = blocks[-1].outputs if blocks else channels
        self.rate, widest = 1, float(channels)
        for block in blocks:
            self.rate *= block.rate
            widest = max(widest, block.outputs / self.rate)
        self.widest = widest

    def tile_length(self, device: torch.device) -> int:
        """Samples that are computed at once, a multiple of `rate`."""
        return max(1, int(tile_elements(device) / (self.widest * self.rate))) * self.rate

    def forward(self, samples: Tensor, past: Past, check: Check) -> Tensor:
        """(length · rate) → (length, outputs)."""
        out = samples.new_empty(len(samples) // self.rate, self.outputs)
        for start, end in tiles(len(samples), self.tile_length(samples.device)):
            check()
            y = self._first(samples[start:end, None], past)
            for block in self.blocks:
                y = block(y, past, check)
            out[start // self.rate : end // self.rate] = y
        return out

    def _first(self, x: Tensor, past: Past) -> Tensor:
        """(length, 1) → (length, channels)."""
        reach = KERNEL - 1
        padded = room(self, reach, x, past)
        padded[reach:] = x
        keep(self, reach, padded, past)
        y: Tensor = self.first(padded, x.new_empty(len(x), self.channels))
        return y


class Mean(nn.Module):
    """Channels → the latents' means. shift: what the convolution before leaves to be added."""

    STREAMABLE = True

    def __init__(self, inputs: int, latent: int) -> None:
        super().__init__()
        self.latent = latent
        self.shift = empty(inputs)
        self.bias = empty(latent)
        self.windows = Windows(inputs, latent, MEAN_KERNEL, 1)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """(length, inputs) → (length, latent)."""
        reach = MEAN_KERNEL - 1
        padded = room(self, reach, x, past)
        torch.add(x, self.shift, out=padded[reach:])
        keep(self, reach, padded, past)
        y: Tensor = self.windows(padded, x.new_empty(len(x), self.latent))
        return y.add_(self.bias)


class VaeEncoder(nn.Module):
    """Samples at the input's rate → latents, in the weights' dtype: float32 as loaded."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.config = config
        widths = config.encoder_widths
        blocks = [
            Block(widths[stage], widths[stage + 1], rate, depthwise=config.depthwise, early=config.early)
            for stage, rate in enumerate(config.encoder_rates)
        ]
        joined = max(0, len(blocks) - APART)
        self.head = Head(blocks[:joined], config.encoder_dim)
        self.blocks = nn.ModuleList(blocks[joined:])
        self.mean = Mean(widths[-1], config.latent_dim)

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        units: list[nn.Module] = [self.head]
        for block in self.blocks:
            assert isinstance(block, Block)
            units += [block.units, *block.downsampling.windows.parts]
        return [*units, self.mean]

    def encode(self, samples: Tensor, check: Check = nothing, *, tile_frames: int = TILE_FRAMES) -> Tensor:
        """samples: float32 (length) at the input's rate, on the encoder's device → float32 (frames, latent_dim).

        The last frame is filled up with zeros. `check` raises to cancel; it is called for each tile. tile_frames: how
        many frames are encoded at once, as in `VaeDecoder.decode`. InputError for samples of another shape.
        """
        config, dtype = self.config, self.mean.bias.dtype
        if samples.ndim != 1 or samples.dtype != dtype:
            shape = f"{tuple(samples.shape)} {samples.dtype}"
            raise InputError(f"the samples are {shape}; (length) {dtype} is needed")
        frames, hop = config.frames(len(samples)), config.input_hop
        past: Past = {}
        latents = samples.new_empty(frames, config.latent_dim)
        for start, end in tiles(frames, tile_frames):
            tile = samples[start * hop : end * hop]
            x = self.head(functional.pad(tile, (0, (end - start) * hop - len(tile))), past, check)
            for block in self.blocks:
                check()
                x = block(x, past, check)
            latents[start:end] = self.mean(x, past)
        return latents
