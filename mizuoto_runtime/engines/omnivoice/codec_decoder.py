"""The codec's decoder: codes → samples.

The last stages are computed in tiles that overlap by all that they depend on, so that only the last bits depend on
where a tile ends. What fits into one tile is upstream's to the last bit on a CPU.

Arithmetic: DAC (https://arxiv.org/abs/2306.06546, section 3), without its last tanh. Upstream:
`HiggsAudioV2TokenizerModel.decode` of transformers 5.24.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ...errors import InputError
from . import codec_layers
from .codec_config import CodecConfig
from .codec_layers import DILATIONS, KERNEL, UNITS_REACH, Conv, Linear, ResidualUnit, Snake, nothing

WHOLE = 2
"""So many stages are computed for all frames at once; the others, which make the most values, tile by tile."""


def tile_frames(config: CodecConfig) -> int:
    """Frames that the last stages take at once."""
    channels = config.decoder_channels >> len(config.upsampling)
    return max(1, codec_layers.TILE_ELEMENTS // (config.hop_length * channels))


def reach_rows(config: CodecConfig) -> int:
    """How far to each side the last stages look, in rows of what the first WHOLE stages give."""
    reach = KERNEL // 2
    for ratio in reversed(config.upsampling[WHOLE:]):
        reach = -(-(reach + UNITS_REACH) // ratio) + 1
    return reach


class Upsample(nn.ConvTranspose1d):
    """Makes the length exactly `ratio` times as long."""

    def __init__(self, inputs: int, outputs: int, ratio: int) -> None:
        padding, more = -(-ratio // 2), ratio % 2
        super().__init__(inputs, outputs, 2 * ratio, ratio, padding=padding, output_padding=more)

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""


class Upsampling(nn.Module):
    """A transposed convolution to half the channels, then residual units."""

    def __init__(self, inputs: int, ratio: int) -> None:
        super().__init__()
        self.activation = Snake(inputs)
        self.upsample = Upsample(inputs, inputs // 2, ratio)
        self.units = nn.ModuleList(ResidualUnit(inputs // 2, dilation) for dilation in DILATIONS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.upsample(self.activation(x, out=x))
        for unit in self.units:
            x = unit(x)
        return x


class Codebook(nn.Module):
    """Vectors and their projection."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        size, width = config.codebook_size, config.codebook_dim
        self.vectors = nn.Embedding(size, width, _weight=torch.empty(size, width))
        self.output = Linear(width, config.hidden)

    def forward(self, codes: Tensor) -> Tensor:
        """(frames) → (frames, hidden)."""
        y: Tensor = self.output(self.vectors(codes))
        return y


class CodecDecoder(nn.Module):
    """Codes → samples at the codec's rate."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.codebooks = nn.ModuleList(Codebook(config) for _ in range(config.quantizers))
        self.joint = Linear(config.hidden, config.width)
        channels = config.decoder_channels
        self.input = Conv(config.width, channels, KERNEL, padding=KERNEL // 2)
        self.stages = nn.ModuleList(
            Upsampling(channels >> stage, ratio) for stage, ratio in enumerate(config.upsampling)
        )
        channels >>= len(config.upsampling)
        self.activation = Snake(channels)
        self.output = Conv(channels, 1, KERNEL, padding=KERNEL // 2)
        self.rows = math.prod(config.upsampling[:WHOLE])
        self.reach = reach_rows(config)

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        return [*self.codebooks, self.joint, self.input, *self.stages, self.output]

    def embeddings(self) -> Iterator[nn.Embedding]:
        """Those that are only indexed, so that they may be marked `gather`."""
        return (book.vectors for book in self.codebooks)  # type: ignore[misc]

    def forward(self, codes: Tensor, check: Callable[[], None] = nothing) -> Tensor:
        """codes: int64 (quantizers or fewer, frames) on the decoder's device → float32 (1, frames · hop_length).

        Samples aren't clipped. `check` raises to cancel; it is called between layers. InputError for codes that the
        codec lacks.
        """
        self._check_codes(codes)
        x = self.input(self._latent(codes).T[None])
        for stage in self.stages[:WHOLE]:
            check()
            x = stage(x)
        return self._tiled(x, check)

    def _tiled(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        """(1, channels, frames · rows) → (1, samples). A tile sees all of its neighbours that it depends on."""
        length, rate = x.shape[2], self.config.hop_length // self.rows
        tile = tile_frames(self.config) * self.rows
        samples = x.new_empty(1, length * rate)
        for start in range(0, length, tile):
            stop = min(length, start + tile)
            low, high = max(0, start - self.reach), min(length, stop + self.reach)
            y = x[:, :, low:high].clone() if high - low < length else x
            for stage in self.stages[WHOLE:]:
                check()
                y = stage(y)
            y = self.output(self.activation(y, out=y))[0]
            samples[:, start * rate : stop * rate] = y[:, (start - low) * rate : (stop - low) * rate]
        return samples

    def _latent(self, codes: Tensor) -> Tensor:
        """(frames, width)."""
        first, *others = zip(self.codebooks, codes, strict=False)
        total: Tensor = first[0](first[1])
        for book, row in others:
            total = total.add_(book(row))
        latent: Tensor = self.joint(total)
        return latent

    def _check_codes(self, codes: Tensor) -> None:
        config = self.config
        if codes.ndim != 2 or not 1 <= codes.shape[0] <= config.quantizers or codes.dtype != torch.int64:
            shape = f"{tuple(codes.shape)} {codes.dtype}"
            raise InputError(f"the codes are {shape}; ({config.quantizers}, frames) int64 is needed")
        if not codes.shape[1]:
            raise InputError("there are no frames of codes to decode")
        low, high = (int(each) for each in torch.aminmax(codes))
        if low < 0 or high >= config.codebook_size:
            raise InputError(
                f"the codes go from {low} to {high}, the codec has 0 to {config.codebook_size - 1}; "
                "they belong to another model"
            )
