"""The codec's encoder: samples → codes. An acoustic and a semantic encoder, then residual quantisation of both.

The first acoustic stage is computed in tiles that overlap by all that they depend on. On a CPU all sums keep upstream's
order to the last bit, so that codes, which are nearest vectors, are equal; but for what several threads sum in tiles.

Arithmetic: DAC (https://arxiv.org/abs/2306.06546, section 3), HuBERT (https://arxiv.org/abs/2106.07447), X-Codec's way
of joining them (Ye et al., https://arxiv.org/abs/2408.17175, section 3). Upstream: `HiggsAudioV2TokenizerModel.encode`
of transformers 5.24.0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...audio.resample import resample_hann
from ...errors import InputError
from ...nn.finite import check_finite
from . import codec_layers
from .codec_config import CodecConfig, SemanticConfig, block_kernel
from .codec_hubert import Hubert
from .codec_layers import DILATIONS, KERNEL, UNITS_REACH, Conv, Linear, ResidualUnit, Snake, nothing

OUTPUT_KERNEL = 3
SEMANTIC_EDGE = 160
"""Zeros on each side of what HuBERT hears, at its rate."""


def tile_samples(channels: int) -> int:
    """Samples that the first stage takes at once."""
    return codec_layers.TILE_ELEMENTS // channels


class Downsampling(nn.Module):
    """Residual units, then a convolution that makes the length `ratio` times as short, with twice the channels."""

    def __init__(self, channels: int, ratio: int) -> None:
        super().__init__()
        self.units = nn.ModuleList(ResidualUnit(channels, dilation) for dilation in DILATIONS)
        self.activation = Snake(channels)
        self.conv = Conv(channels, 2 * channels, 2 * ratio, ratio, padding=-(-ratio // 2))

    def forward(self, x: Tensor) -> Tensor:
        for unit in self.units:
            x = unit(x)
        y: Tensor = self.conv(self.activation(x, out=x))
        return y


class AcousticEncoder(nn.Module):
    """(1, 1, samples) → (1, width, frames)."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        channels = config.encoder_channels
        self.input = Conv(1, channels, KERNEL, padding=KERNEL // 2)
        self.stages = nn.ModuleList(
            Downsampling(channels << stage, ratio) for stage, ratio in enumerate(config.downsampling)
        )
        channels <<= len(config.downsampling)
        self.activation = Snake(channels)
        self.output = Conv(channels, config.width, OUTPUT_KERNEL, padding=OUTPUT_KERNEL // 2)
        self.ratios = config.downsampling

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        return [self.input, *self.stages, self.output]

    def frames(self, samples: int, stages: int | None = None) -> int:
        """How long `samples` samples are after so many stages, after all by default."""
        for ratio in self.ratios[:stages]:
            samples = (samples + 2 * -(-ratio // 2) - 2 * ratio) // ratio + 1
        return samples

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        x = self._tiled(x, check)
        for stage in self.stages[1:]:
            check()
            x = stage(x)
        y: Tensor = self.output(self.activation(x, out=x))
        return y

    def _tiled(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        """The first convolution and stage. A tile sees all of its neighbours that it depends on."""
        ratio, samples = self.ratios[0], x.shape[2]
        reach = -(-(UNITS_REACH + KERNEL // 2) // ratio) + 1
        tile, length = max(1, tile_samples(self.input.out_channels) // ratio), self.frames(samples, 1)
        parts = []
        for start in range(0, length, tile):
            check()
            stop, low = min(length, start + tile), max(0, start - reach)
            high = samples if stop == length else min(samples, (stop + reach) * ratio)
            part = self.stages[0](self.input(x[:, :, low * ratio : high]))
            parts.append(part[:, :, start - low : stop - low])
        return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


class SemanticUnit(nn.Module):
    """Two convolutions, each activated before, added to their input."""

    def __init__(self, config: SemanticConfig, width: int, dilation: int) -> None:
        super().__init__()
        padding = (config.unit_kernel - 1) // 2 * dilation
        self.first = Conv(width, width, config.unit_kernel, dilation=dilation, padding=padding, bias=False)
        self.second = Conv(width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(functional.elu_(self.first(functional.elu(x)))).add_(x)
        return y


class SemanticBlock(nn.Module):
    """Residual units, then a convolution."""

    def __init__(self, config: SemanticConfig, index: int) -> None:
        super().__init__()
        width = (config.width, *config.widths)[index]
        kernel, stride = block_kernel(config.strides[index]), config.strides[index]
        self.units = nn.ModuleList(SemanticUnit(config, width, dilation) for dilation in config.dilations)
        self.conv = Conv(width, config.widths[index], kernel, stride, padding=(kernel - 1) // 2)

    def forward(self, x: Tensor) -> Tensor:
        for unit in self.units:
            x = unit(x)
        y: Tensor = self.conv(x)
        return y


class SemanticEncoder(nn.Module):
    """(1, width, features) → (1, width, frames)."""

    def __init__(self, config: SemanticConfig) -> None:
        super().__init__()
        self.input = Conv(config.width, config.width, config.kernel, padding=config.kernel // 2, bias=False)
        self.blocks = nn.ModuleList(SemanticBlock(config, index) for index in range(len(config.widths)))

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        return [self.input, *self.blocks]

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        x = self.input(x)
        for block in self.blocks:
            check()
            x = block(x)
        return x


class Vectors(nn.Module):
    """Looks for the nearest of them."""

    STREAMABLE = True

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x: (frames, width) → the nearest vectors' numbers, (frames), of several the first; they, (frames, width); and
        their distances, negative, (frames).

        The nearest has the least squared distance, summed as upstream does it.
        """
        vectors = self.weight.t()
        distance = x.square().sum(1, keepdim=True) - 2 * x @ vectors + vectors.square().sum(0, keepdim=True)
        nearness, codes = distance.neg_().max(dim=-1)
        return codes, functional.embedding(codes, self.weight), nearness


class Quantizer(nn.Module):
    """The nearest vector to a projection, and what it leaves unsaid."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.input = Linear(config.hidden, config.codebook_dim)
        self.vectors = Vectors(config.codebook_size, config.codebook_dim)
        self.output = Linear(config.codebook_dim, config.hidden)

    def forward(self, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """residual: (frames, hidden) → codes (frames), the next residual, and the codes' distances (frames)."""
        codes, nearest, nearness = self.vectors(self.input(residual))
        return codes, residual - self.output(nearest), nearness


class CodecEncoder(nn.Module):
    """Samples → codes. Only the quantizers that encoding fills are kept."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.acoustic = AcousticEncoder(config)
        self.hubert = Hubert(config.hubert)
        self.semantic = SemanticEncoder(config.semantic)
        self.joint = Linear(config.hidden, config.hidden)
        self.quantizers = nn.ModuleList(Quantizer(config) for _ in range(config.used))

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        parts = (self.hubert, self.semantic, self.acoustic)
        return [*(unit for part in parts for unit in part.memory_units()), self.joint, *self.quantizers]

    def forward(self, wave: Tensor, check: Callable[[], None] = nothing) -> Tensor:
        """wave: float32 (1, length) at the codec's rate, on the encoder's device → int64 (used, length / hop_length).

        `check` raises to cancel; it is called between layers. InputError if there are too few samples, or not a
        multiple of hop_length; NotFinite if the weights give no numbers.
        """
        padded = self._fitted(wave)
        semantic = self.semantic(self._features(wave, check).transpose(1, 2), check)
        acoustic = self.acoustic(padded[None], check)
        residual = self.joint(torch.cat((acoustic, semantic), dim=1)[0].T)
        codes, distances = [], []
        for quantizer in self.quantizers:
            check()
            code, residual, distance = quantizer(residual)
            codes.append(code)
            distances.append(distance)
        check_finite(torch.stack(distances), "the encoded reference's distances from codes")
        return torch.stack(codes)

    def _features(self, wave: Tensor, check: Callable[[], None]) -> Tensor:
        """(1, features, width)."""
        config = self.config
        heard = resample_hann(wave, config.rate_hz, config.semantic_rate_hz, precise=False)
        features: Tensor = self.hubert(functional.pad(heard, (SEMANTIC_EDGE, SEMANTIC_EDGE)), check)
        return features[:, :: config.thinning]

    def _fitted(self, wave: Tensor) -> Tensor:
        """The samples for the acoustic encoder; with a frame more if it would give too few, as upstream does it."""
        config = self.config
        if wave.ndim != 2 or wave.shape[0] != 1 or wave.dtype != torch.float32:
            raise InputError(f"the sound is {tuple(wave.shape)} {wave.dtype}; (1, samples) float32 is needed")
        samples, hop = wave.shape[1], config.hop_length
        heard = -(-samples * config.semantic_rate_hz // config.rate_hz) + 2 * SEMANTIC_EDGE
        features = config.hubert.frames(heard)
        wanted = config.semantic.frames(-(-features // config.thinning)) if features > 0 else 0
        for edge in (0, hop // 2):
            if wanted > 0 and self.acoustic.frames(samples + 2 * edge) == wanted:
                return functional.pad(wave, (edge, edge)) if edge else wave
        raise InputError(
            f"{samples:,} samples can't be encoded: the acoustic encoder makes {self.acoustic.frames(samples)} frames "
            f"of them, the semantic one {wanted}; give a multiple of {hop:,} samples"
        )
