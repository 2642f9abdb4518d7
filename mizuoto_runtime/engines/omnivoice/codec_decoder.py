"""The codec's decoder: codes → samples.

Arithmetic: DAC (https://arxiv.org/abs/2306.06546, section 3), without its last tanh. Upstream:
`HiggsAudioV2TokenizerModel.decode` of transformers 5.24.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ...errors import InputError
from .codec_config import CodecConfig
from .codec_layers import DILATIONS, KERNEL, Conv, Linear, ResidualUnit, Snake, nothing


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
        for stage in self.stages:
            check()
            x = stage(x)
        samples: Tensor = self.output(self.activation(x, out=x))
        return samples[0]

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
