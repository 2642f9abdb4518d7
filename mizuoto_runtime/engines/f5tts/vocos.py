"""Vocos: a mel spectrogram → samples, by way of magnitudes and phases.

Arithmetic: Siuzdak, https://arxiv.org/abs/2306.00814, section 3. Upstream: vocos 0.1.0, `models.py` and `heads.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...nn.linear import Linear
from .layers import NORM_EPSILON, empty

KERNEL = 7
LARGEST_MAGNITUDE = 100.0
TILE_FRAMES = 256
TILING_ERROR = 1e-5
"""The most by which samples made in tiles differ, of samples within −1 … 1: tiles overlap by all that they depend on,
so only the order of sums does."""


@dataclass(frozen=True, kw_only=True)
class VocosConfig:
    """mel: bands. inner: width inside a block. scaled: whether blocks have gains. padding: how edges are treated."""

    mel: int
    width: int
    inner: int
    layers: int
    scaled: bool
    window: int
    hop: int
    padding: Literal["center", "same"]
    rate_hz: int

    @property
    def reach_frames(self) -> int:
        """Frames on either side of a sample on which it depends."""
        return (self.layers + 1) * (KERNEL // 2) + -(-self.window // (2 * self.hop)) + 1


class Embedding(nn.Conv1d):
    def __init__(self, inputs: int, outputs: int, *, groups: int = 1) -> None:
        super().__init__(inputs, outputs, KERNEL, padding=KERNEL // 2, groups=groups)

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""


class Block(nn.Module):
    """A ConvNeXt block over (rows, length, width)."""

    def __init__(self, config: VocosConfig) -> None:
        super().__init__()
        self.depthwise = Embedding(config.width, config.width, groups=config.width)
        self.norm = nn.LayerNorm(config.width, eps=NORM_EPSILON)
        self.widen = Linear(config.width, config.inner, gelu="none")
        self.narrow = Linear(config.inner, config.width)
        self.gain = empty(config.width) if config.scaled else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x.transpose(1, 2)).transpose(1, 2))
        y = self.narrow(self.widen(y))
        z: Tensor = x + (y if self.gain is None else self.gain * y)
        return z


class Vocos(nn.Module):
    """Computes in float32, whatever the transformer does."""

    def __init__(self, config: VocosConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.mel, config.width)
        self.norm = nn.LayerNorm(config.width, eps=NORM_EPSILON)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output_norm = nn.LayerNorm(config.width, eps=NORM_EPSILON)
        self.output = Linear(config.width, config.window + 2)
        self.window: Tensor
        self.register_buffer("window", torch.empty(config.window))

    def memory_units(self) -> list[nn.Module]:
        """What streams together, in running order."""
        return [self.embedding, *self.blocks, self.output]

    def length(self, frames: int) -> int:
        """Samples that `frames` frames give."""
        return (frames - 1 if self.config.padding == "center" else frames) * self.config.hop

    def forward(self, mel: Tensor, check: Callable[[], None] = lambda: None) -> Tensor:
        """mel: (rows, frames, bands) float32 → (rows, samples). check: raises to cancel; called between layers."""
        x = self.norm(self.embedding(mel.transpose(1, 2)).transpose(1, 2))
        for block in self.blocks:
            check()
            x = block(x)
        magnitude, phase = self.output(self.output_norm(x)).transpose(1, 2).chunk(2, dim=1)
        return self._samples(torch.polar(magnitude.exp().clamp(max=LARGEST_MAGNITUDE), phase))

    def _samples(self, spectrum: Tensor) -> Tensor:
        """(rows, frequencies, frames) → (rows, samples)."""
        config = self.config
        if config.padding == "center":
            return torch.istft(spectrum, config.window, config.hop, config.window, self.window)
        pieces = torch.fft.irfft(spectrum, config.window, dim=1) * self.window[:, None]
        envelope = self.window.square()[:, None].expand(1, -1, spectrum.shape[-1])
        return self._overlapped(pieces) / self._overlapped(envelope)

    def _overlapped(self, pieces: Tensor) -> Tensor:
        """(rows, window, frames), each frame a hop later than the one before → (rows, samples), without the edges."""
        config = self.config
        whole = (pieces.shape[-1] - 1) * config.hop + config.window
        added = functional.fold(pieces, (1, whole), (1, config.window), stride=(1, config.hop))[:, 0, 0]
        edge = (config.window - config.hop) // 2
        return added[:, edge : whole - edge]

    def tiled(self, mel: Tensor, check: Callable[[], None] = lambda: None) -> Tensor:
        """As `forward`, TILE_FRAMES at a time; samples differ by TILING_ERROR at most."""
        frames, reach = mel.shape[1], self.config.reach_frames
        parts = []
        for start in range(0, frames, TILE_FRAMES):
            check()
            low, high = max(0, start - reach), min(frames, start + TILE_FRAMES + reach)
            samples = self(mel[:, low:high])
            stop = min(start + TILE_FRAMES, frames)
            end = self.length(frames) if stop == frames else stop * self.config.hop
            parts.append(samples[:, (start - low) * self.config.hop : end - low * self.config.hop])
        return torch.cat(parts, dim=1)
