"""The codec's encoder: samples → codes. It is Mimi's.

The first stages are computed in tiles from left to right; all convolutions are causal, so what a tile needs of those
before is carried on. On a CPU all sums keep upstream's order to the last bit, so that codes, which are nearest vectors,
are equal; later stages would lose that in tiles.

Arithmetic: Mimi (Défossez et al., https://arxiv.org/abs/2410.00037, section 3.3), SEANet (Tagliasacchi et al.,
https://arxiv.org/abs/2009.02095). Upstream: MimiModel of transformers 4.57.3, without its decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...nn.finite import check_finite
from .codec_config import EncoderConfig
from .codec_decoder import USAGE_LOW, nothing
from .codec_layers import Past, Transformer, empty

TILE_SAMPLES = 1 << 16
ACCELERATOR_TILE_SAMPLES = 1 << 20
JOINED = 2
"""The first stages are computed together, tile by tile: they are small, but what lies between them is long."""


class PaddedConv(nn.Conv1d):
    """A causal convolution over (1, channels, length); its last frame is filled up on the right.

    replicates: pads with the values at the edges, else with zeros.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = True,
        replicates: bool = False,
    ) -> None:
        super().__init__(inputs, outputs, kernel_size, stride, dilation=dilation, bias=bias)
        self.reach = (kernel_size - 1) * dilation + 1 - stride
        self.replicates = replicates

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, x: Tensor, past: Past) -> Tensor:  # type: ignore[override]
        """x: (1, inputs, length), a multiple of the stride in all tiles but the last."""
        fill = -x.shape[2] % self.stride[0]
        before = past.get(self)
        if before is None:
            before = self._edge(x[:, :, :1], self.reach)
        after = self._edge(x[:, :, -1:], fill)
        padded = torch.cat((before, x, after), dim=2) if self.reach or fill else x
        past[self] = padded[:, :, padded.shape[2] - self.reach :].clone()
        return functional.conv1d(padded, self.weight, self.bias, self.stride, 0, self.dilation)

    def _edge(self, value: Tensor, length: int) -> Tensor:
        """What pads the input next to `value`, (1, inputs, 1)."""
        return value.expand(-1, -1, length) if self.replicates else value.new_zeros(1, value.shape[1], length)


class Residual(nn.Module):
    """A convolution to fewer channels and one back, each after ELU, added to their input."""

    def __init__(self, config: EncoderConfig, channels: int, dilation: int) -> None:
        super().__init__()
        hidden, replicates = channels // config.compress, config.replicates
        kernel = config.residual_kernel
        self.narrow = PaddedConv(channels, hidden, kernel, dilation=dilation, replicates=replicates)
        self.widen = PaddedConv(hidden, channels, 1, replicates=replicates)
        self.shortcut = PaddedConv(channels, channels, 1, replicates=replicates) if config.shortcut else None

    def forward(self, x: Tensor, past: Past) -> Tensor:
        y: Tensor = self.widen(functional.elu_(self.narrow(functional.elu(x), past)), past)
        return y.add_(x if self.shortcut is None else self.shortcut(x, past))


class Downsampling(nn.Module):
    """Residual blocks, then a convolution that makes the length `ratio` times as short, with twice the channels."""

    def __init__(self, config: EncoderConfig, stage: int) -> None:
        super().__init__()
        ratio, channels = config.ratios[stage], config.filters << stage
        dilations = (config.dilation_growth**layer for layer in range(config.residual_layers))
        self.blocks = nn.ModuleList(Residual(config, channels, dilation) for dilation in dilations)
        self.conv = PaddedConv(channels, 2 * channels, 2 * ratio, stride=ratio, replicates=config.replicates)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        for block in self.blocks:
            x = block(x, past)
        y: Tensor = self.conv(functional.elu_(x) if self.blocks else functional.elu(x), past)
        return y


def tile_samples(device: torch.device) -> int:
    """Samples that the first stages take at once."""
    return TILE_SAMPLES if device.type == "cpu" else ACCELERATOR_TILE_SAMPLES


class Tiled(nn.Module):
    """Parts that are computed together, tile by tile. ratio: how many times as short they make the length."""

    def __init__(self, parts: list[nn.Module], ratio: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.ratio = ratio

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        """x: (1, inputs, length) → (1, channels, ⌈length / ratio⌉)."""
        tile_length = max(1, tile_samples(x.device) // self.ratio) * self.ratio
        past: Past = {}
        tiles = []
        for start in range(0, x.shape[2], tile_length):
            check()
            tile = x[:, :, start : start + tile_length]
            for part in self.parts:
                tile = part(tile, past)
            tiles.append(tile)
        return torch.cat(tiles, dim=2)


class Quantizer(nn.Module):
    """The nearest of several vectors, kept as the sum of what was assigned to each and how much that was."""

    STREAMABLE = True

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.sums = empty(size, width)
        self.usage = empty(size)

    def forward(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """residual: (frames, width) → codes (frames), and what the vectors leave of it. Distances are float32."""
        vectors = self.sums / self.usage.clamp(min=USAGE_LOW)[:, None]
        codes = torch.cdist(residual[None].float(), vectors[None].float())[0].argmin(dim=-1)
        return codes, residual - functional.embedding(codes, vectors)


class Quantizers(nn.Module):
    """A projection, then quantizers one after the other, each for what those before leave."""

    def __init__(self, count: int, config: EncoderConfig) -> None:
        super().__init__()
        projected = config.codebook_dim != config.width
        self.input = PaddedConv(config.width, config.codebook_dim, 1, bias=False) if projected else None
        self.books = nn.ModuleList(Quantizer(config.codebook_size, config.codebook_dim) for _ in range(count))

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        """x: (1, width, frames) → (count, frames). NotFinite if the weights give no numbers."""
        residual = (x if self.input is None else self.input(x, {}))[0].T
        codes = []
        for book in self.books:
            check()
            code, residual = book(residual)
            codes.append(code)
        check_finite(residual, "what codes leave of the encoded reference's values")
        return torch.stack(codes)


class CodecEncoder(nn.Module):
    """Samples → codes. Only the quantizers whose codes are used are kept."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        stages: list[nn.Module] = [Downsampling(config, stage) for stage in range(len(config.ratios))]
        first = PaddedConv(config.channels, config.filters, config.kernel, replicates=config.replicates)
        self.first = Tiled([first, *stages[:JOINED]], math.prod(config.ratios[:JOINED]))
        self.stages = nn.ModuleList(stages[JOINED:])
        channels = config.filters << len(config.ratios)
        self.output = PaddedConv(channels, config.width, config.last_kernel, replicates=config.replicates)
        self.transformer = Transformer(config.transformer, gated=False)
        self.downsample = PaddedConv(
            config.width, config.width, config.downsample_kernel, stride=2, bias=False, replicates=True
        )
        self.semantic = Quantizers(config.semantic, config)
        self.acoustic = Quantizers(config.used - config.semantic, config)

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        ends = [part for books in (self.semantic, self.acoustic) for part in (books.input, *books.books)]
        parts = [self.first, *self.stages, self.output, *self.transformer.layers, self.downsample, *ends]
        return [part for part in parts if part is not None]

    def encode(self, samples: Tensor, check: Callable[[], None] = nothing) -> Tensor:
        """samples: float32 (length) at the codec's rate, on the encoder's device → int64 (used, ⌈length / hop_length⌉).

        `check` raises to cancel; it is called between layers and tiles.
        """
        x = self.first(samples.to(self.output.weight.dtype)[None, None], check)
        for stage in self.stages:
            check()
            x = stage(x, {})
        x = self.output(functional.elu_(x), {})
        x = self.transformer(x.transpose(1, 2), check).transpose(1, 2)
        x = self.downsample(x, {})
        codes = torch.cat((self.semantic(x, check), self.acoustic(x, check)))
        return codes[:, : math.ceil(len(samples) / self.config.hop_length)]
