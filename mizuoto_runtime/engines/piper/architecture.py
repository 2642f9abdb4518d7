"""The sizes of a VITS model, frozen; what `export` reads out of a voice's graph and `model` is built from.

Each part checks its own sizes: nothing is built, divided or shifted by a size that no voice has.

VITS: https://arxiv.org/abs/2106.06103 · HiFi-GAN: https://arxiv.org/abs/2010.05646
"""

from __future__ import annotations

import json
import math
import reprlib
from dataclasses import asdict, dataclass
from typing import Any

MAX_CHANNELS = 1 << 20
MAX_KERNEL_SIZE = 1 << 12
MAX_DILATION = 1 << 12
MAX_HOP_LENGTH = 1 << 16
MAX_BINS = 256
MAX_LAYERS = 32
MAX_BLOCKS = 64


class SizeError(ValueError):
    """A size that no voice has; the message names it."""


@dataclass(frozen=True, kw_only=True)
class TextEncoderConfig:
    """A transformer with relative positions up to `window` symbols away."""

    channels: int
    filter_channels: int
    heads: int
    layers: int
    kernel_size: int
    window: int

    def __post_init__(self) -> None:
        _check_size("text.channels", self.channels, MAX_CHANNELS)
        _check_size("text.filter_channels", self.filter_channels, MAX_CHANNELS)
        _check_size("text.heads", self.heads, self.channels)
        _check_size("text.layers", self.layers, MAX_LAYERS)
        _check_kernel("text.kernel_size", self.kernel_size)
        _check_size("text.window", self.window, MAX_CHANNELS, low=0)
        if self.channels % self.heads:
            raise SizeError(f"text.channels is {self.channels}; a multiple of its {self.heads} heads is needed")


@dataclass(frozen=True, kw_only=True)
class StochasticDurationConfig:
    """A flow of `flows` rational-quadratic splines with `bins` bins, each steered by a dilated convolution stack."""

    channels: int
    kernel_size: int
    dilations: tuple[int, ...]
    flows: int
    bins: int

    def __post_init__(self) -> None:
        _check_size("durations.channels", self.channels, MAX_CHANNELS)
        _check_kernel("durations.kernel_size", self.kernel_size)
        _check_sizes("durations.dilations", self.dilations, MAX_DILATION)
        _check_size("durations.flows", self.flows, MAX_LAYERS)
        _check_size("durations.bins", self.bins, MAX_BINS)


@dataclass(frozen=True, kw_only=True)
class PlainDurationConfig:
    """Two convolutions and a projection, without noise."""

    channels: int
    kernel_size: int

    def __post_init__(self) -> None:
        _check_size("durations.channels", self.channels, MAX_CHANNELS)
        _check_kernel("durations.kernel_size", self.kernel_size)


@dataclass(frozen=True, kw_only=True)
class FlowConfig:
    """`flows` mean-only affine couplings, each steered by a WaveNet with one dilation per layer."""

    flows: int
    channels: int
    kernel_size: int
    dilations: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_size("flow.flows", self.flows, MAX_LAYERS)
        _check_size("flow.channels", self.channels, MAX_CHANNELS)
        _check_kernel("flow.kernel_size", self.kernel_size)
        _check_sizes("flow.dilations", self.dilations, MAX_DILATION)


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

    def __post_init__(self) -> None:
        _check_size("generator.channels", self.channels, MAX_CHANNELS)
        _check_kernel("generator.kernel_size", self.kernel_size)
        _check_kernel("generator.post_kernel_size", self.post_kernel_size)
        if not isinstance(self.paired, bool):
            raise SizeError(f"generator.paired is {reprlib.repr(self.paired)}; true or false is needed")
        self._check_stages()
        self._check_blocks()

    def _check_stages(self) -> None:
        _check_sizes("generator.upsample_rates", self.upsample_rates, MAX_KERNEL_SIZE)
        _check_sizes("generator.upsample_kernel_sizes", self.upsample_kernel_sizes, MAX_KERNEL_SIZE)
        rates, sizes = self.upsample_rates, self.upsample_kernel_sizes
        if len(rates) != len(sizes) or any(size < rate or (size - rate) % 2 for rate, size in zip(rates, sizes)):
            raise SizeError(f"generator.upsample_rates {list(rates)} don't go with kernels of {list(sizes)}")
        _check_size("generator.upsample_rates' product", math.prod(rates), MAX_HOP_LENGTH)
        if self.stage_channels(len(rates) - 1) == 0:
            raise SizeError(f"generator.channels is {self.channels}; {len(rates)} stages can't halve it each")

    def _check_blocks(self) -> None:
        _check_sizes("generator.block_kernel_sizes", self.block_kernel_sizes, MAX_KERNEL_SIZE)
        for size in self.block_kernel_sizes:
            _check_kernel("generator.block_kernel_sizes", size)
        blocks, dilations = len(self.block_kernel_sizes), self.block_dilations
        if not isinstance(dilations, tuple) or len(dilations) != blocks:
            raise SizeError(f"generator.block_dilations is {reprlib.repr(dilations)}; one for each block is needed")
        for each in dilations:
            _check_sizes("generator.block_dilations", each, MAX_DILATION)
        _check_size("the generator's residual blocks", blocks * len(self.upsample_rates), MAX_BLOCKS)

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

    def __post_init__(self) -> None:
        _check_size("num_symbols", self.num_symbols, MAX_CHANNELS)
        _check_size("speaker_channels", self.speaker_channels, MAX_CHANNELS, low=0)
        _check_size("num_speakers", self.num_speakers, MAX_CHANNELS if self.speaker_channels else 1)
        _check_size("latent_channels", self.latent_channels, MAX_CHANNELS, low=2)
        if self.latent_channels % 2:
            raise SizeError(f"latent_channels is {self.latent_channels}; an even number is needed")

    @property
    def hop_length(self) -> int:
        """Samples per latent frame."""
        return math.prod(self.generator.upsample_rates)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> VitsConfig:
        """The inverse of `to_json`. Raises ValueError (SizeError for a size), TypeError or KeyError for anything else."""
        decoded = json.loads(text)
        if not isinstance(decoded, dict):
            raise ValueError("a model's sizes are no JSON object")
        parts: dict[str, Any] = {name: _tuples(value) for name, value in decoded.items()}
        durations = parts.pop("durations")
        kind = StochasticDurationConfig if "flows" in durations else PlainDurationConfig
        return VitsConfig(
            text=TextEncoderConfig(**parts.pop("text")),
            durations=kind(**durations),
            flow=FlowConfig(**parts.pop("flow")),
            generator=GeneratorConfig(**parts.pop("generator")),
            **parts,
        )


def _check_size(name: str, value: object, high: int, *, low: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SizeError(f"{name} is {reprlib.repr(value)}; a whole number from {low} to {high:,} is needed")


def _check_sizes(name: str, values: object, high: int) -> None:
    if not isinstance(values, tuple) or not 1 <= len(values) <= MAX_LAYERS:
        raise SizeError(f"{name} is {reprlib.repr(values)}; 1 to {MAX_LAYERS} numbers are needed")
    for value in values:
        _check_size(name, value, high)


def _check_kernel(name: str, size: int) -> None:
    _check_size(name, size, MAX_KERNEL_SIZE)
    if size % 2 == 0:
        raise SizeError(f"{name} is {size}; an odd number is needed")


def _tuples(value: object) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(each) for each in value)
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return value
