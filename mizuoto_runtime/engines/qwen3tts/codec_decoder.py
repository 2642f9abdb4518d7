"""The codec's decoder: codes → samples.

Arithmetic: Mimi (https://arxiv.org/abs/2410.00037, section 3.3) with ConvNeXt blocks (https://arxiv.org/abs/2201.03545)
between its transformer and its vocoder. Upstream: qwen_tts/core/tokenizer_12hz of qwen-tts 0.1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import InputError
from .codec_config import DecoderConfig
from .codec_layers import LayerNorm, Linear, RmsNorm, Transformer, empty
from .codec_vocoder import CausalConv, CausalUpsample, Vocoder

CHUNK_FRAMES = 300
CONTEXT_FRAMES = 25
"""Upstream's: a chunk sees as many frames before itself as context, so they are part of the result."""
USAGE_LOW = 1e-5
CONVNEXT_KERNEL = 7
CONVNEXT_EPSILON = 1e-6
PRE_KERNEL = 3


def nothing() -> None:
    """The check of a request that can't be cancelled."""


class Codebook(nn.Module):
    """Vectors, kept as the sum of what was assigned to each and how much that was."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.usage = empty(size)
        self.sums = nn.Embedding(size, width, _weight=torch.empty(size, width))

    def forward(self, codes: Tensor) -> Tensor:
        """codes: (frames) → (frames, width)."""
        rows: Tensor = self.sums(codes)
        return rows / self.usage[codes].clamp(min=USAGE_LOW)[:, None]


class Codebooks(nn.Module):
    """The vectors of several codebooks, summed and projected."""

    def __init__(self, count: int, config: DecoderConfig) -> None:
        super().__init__()
        self.books = nn.ModuleList(Codebook(config.codebook_size, config.vector) for _ in range(count))
        self.output = CausalConv(config.vector, config.codebook_dim, 1, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        """codes: (codebooks, frames) → (frames, codebook_dim)."""
        first, *others = zip(self.books, codes, strict=True)
        total: Tensor = first[0](first[1])
        for book, row in others:
            total += book(row)
        projected: Tensor = self.output(total)
        return projected


class ConvNeXt(nn.Module):
    """A depthwise convolution and an MLP, added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = CausalConv(width, width, CONVNEXT_KERNEL, groups=width)
        self.norm = LayerNorm(width, eps=CONVNEXT_EPSILON)
        self.widen = Linear(width, 4 * width)
        self.narrow = Linear(4 * width, width)
        self.gamma = empty(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise.over(x, {}))
        z: Tensor = x + self.gamma * self.narrow(functional.gelu(self.widen(y)))
        return z


class Upsampling(nn.Module):
    """(length, width) → (length · ratio, width)."""

    def __init__(self, width: int, ratio: int) -> None:
        super().__init__()
        self.upsample = CausalUpsample(width, width, ratio, 1)
        self.block = ConvNeXt(width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block(self.upsample(x, {}))
        return y


class CodecDecoder(nn.Module):
    """Codes → samples at the codec's rate. Upstream's chunks are kept, so long results agree as well."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.transformer.width
        self.semantic = Codebooks(1, config)
        self.acoustic = Codebooks(config.quantizers - 1, config)
        self.pre_conv = CausalConv(config.codebook_dim, config.latent, PRE_KERNEL)
        self.input = Linear(config.latent, width)
        self.transformer = Transformer(config.transformer, gated=True)
        self.norm = RmsNorm(width, config.transformer.epsilon)
        self.output = Linear(width, config.latent)
        self.upsamplings = nn.ModuleList(Upsampling(config.latent, ratio) for ratio in config.upsampling_ratios)
        self.vocoder = Vocoder(config)

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        parts = [self.semantic.output, self.acoustic.output, self.pre_conv, self.input, *self.transformer.layers]
        return [*parts, self.output, *self.upsamplings, self.vocoder.input, *self.vocoder.stages]

    def embeddings(self) -> Iterator[nn.Embedding]:
        """Those that are only indexed, so that they may be marked `gather`."""
        return (book.sums for books in (self.semantic, self.acoustic) for book in books.books)  # type: ignore[misc]

    def decode(self, codes: Tensor, check: Callable[[], None] = nothing) -> Tensor:
        """codes: int64 (quantizers, frames) on the decoder's device → float32 (frames · hop_length), between −1 and 1.

        `check` raises to cancel; it is called between layers and tiles. InputError for codes that the codec lacks.
        """
        self._check_codes(codes)
        frames, hop = codes.shape[1], self.config.hop_length
        samples = torch.empty(frames * hop, dtype=torch.float32, device=codes.device)
        for start in range(0, frames, CHUNK_FRAMES):
            end, context = min(frames, start + CHUNK_FRAMES), min(start, CONTEXT_FRAMES)
            chunk = self._chunk(codes[:, start - context : end], check)
            samples[start * hop : end * hop] = chunk[context * hop :]
        return samples

    def _chunk(self, codes: Tensor, check: Callable[[], None]) -> Tensor:
        check()
        x = self.semantic(codes[:1]) + self.acoustic(codes[1:])
        x = self.input(self.pre_conv.over(x, {}))
        x = self.output(self.norm(self.transformer(x[None], check)[0]))
        for upsampling in self.upsamplings:
            check()
            x = upsampling(x)
        samples: Tensor = self.vocoder(x, check)
        return samples

    def _check_codes(self, codes: Tensor) -> None:
        config = self.config
        if codes.ndim != 2 or codes.shape[0] != config.quantizers or codes.dtype != torch.int64:
            shape = f"{tuple(codes.shape)} {codes.dtype}"
            raise InputError(f"the codes are {shape}; ({config.quantizers}, frames) int64 is needed")
        if not codes.shape[1]:
            return
        low, high = (int(each) for each in torch.aminmax(codes))
        if low < 0 or high >= config.codebook_size:
            raise InputError(
                f"the codes go from {low} to {high}, the codec has 0 to {config.codebook_size - 1}; "
                "they belong to another model"
            )
