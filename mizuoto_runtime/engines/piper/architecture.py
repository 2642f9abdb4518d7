"""The sizes of a VITS model, frozen; what `export` reads out of a voice's graph and `model` is built from.

VITS: https://arxiv.org/abs/2106.06103 · HiFi-GAN: https://arxiv.org/abs/2010.05646
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TextEncoderConfig:
    """A transformer with relative positions up to `window` symbols away."""

    channels: int
    filter_channels: int
    heads: int
    layers: int
    kernel_size: int
    window: int


@dataclass(frozen=True, kw_only=True)
class StochasticDurationConfig:
    """A flow of `flows` rational-quadratic splines with `bins` bins, each steered by a dilated convolution stack."""

    channels: int
    kernel_size: int
    dilations: tuple[int, ...]
    flows: int
    bins: int


@dataclass(frozen=True, kw_only=True)
class PlainDurationConfig:
    """Two convolutions and a projection, without noise."""

    channels: int
    kernel_size: int


@dataclass(frozen=True, kw_only=True)
class FlowConfig:
    """`flows` mean-only affine couplings, each steered by a WaveNet with one dilation per layer."""

    flows: int
    channels: int
    kernel_size: int
    dilations: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """HiFi-GAN. `paired`: each dilated convolution of a residual block is followed by an undilated one (type 1)."""

    channels: int
    kernel_size: int
    post_kernel_size: int
    upsample_rates: tuple[int, ...]
    upsample_kernel_sizes: tuple[int, ...]
    paired: bool
    block_kernel_sizes: tuple[int, ...]
    block_dilations: tuple[tuple[int, ...], ...]

    def stage_channels(self, stage: int) -> int:
        """Channels after upsampling stage `stage`, counted from 0."""
        return self.channels >> (stage + 1)

    @property
    def block_reach(self) -> int:
        """How many samples to each side a stage's residual blocks look at most."""
        undilated = 1 if self.paired else 0
        blocks = zip(self.block_kernel_sizes, self.block_dilations, strict=True)
        return max(sum(each + undilated for each in dilations) * (size // 2) for size, dilations in blocks)


@dataclass(frozen=True, kw_only=True)
class VitsConfig:
    """The whole model. `speaker_channels` is 0 where the voice has one speaker and so no embedding of it."""

    num_symbols: int
    num_speakers: int
    speaker_channels: int
    latent_channels: int
    text: TextEncoderConfig
    durations: StochasticDurationConfig | PlainDurationConfig
    flow: FlowConfig
    generator: GeneratorConfig

    @property
    def hop_length(self) -> int:
        """Samples per latent frame."""
        return math.prod(self.generator.upsample_rates)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> VitsConfig:
        """The inverse of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        parts: dict[str, Any] = {name: _tuples(value) for name, value in json.loads(text).items()}
        durations = parts.pop("durations")
        kind = StochasticDurationConfig if "flows" in durations else PlainDurationConfig
        return VitsConfig(
            text=TextEncoderConfig(**parts.pop("text")),
            durations=kind(**durations),
            flow=FlowConfig(**parts.pop("flow")),
            generator=GeneratorConfig(**parts.pop("generator")),
            **parts,
        )


def _tuples(value: object) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(each) for each in value)
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return value
