"""The sizes of the audio VAE, as `audio_vae_config` in config.json states them.

What a file leaves out has the default of voxcpm 2.0.3's class of that architecture. What isn't computed here is refused
by name.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...weights.entries import MAX_SIZE, Entry

Architecture = Literal["voxcpm", "voxcpm2"]
KEY = "audio_vae_config"
MAX_HOP = 1 << 20
MAX_RATE_HZ = 1 << 20
SCALES = ("scale_bias", "scale_bias_init")
SHIFTS = ("add",)


@dataclass(frozen=True, kw_only=True)
class VaeConfig:
    """Both halves of the VAE, and their rates.

    rates: how many times as short (encoder) or as long (decoder) each block makes its input. early: the encoder's
    convolutions of an odd stride see one sample less of the present and one more of the past, as those of the first
    architecture do. bounds_hz: what the sample rates' conditions lie between; None: the decoder has none. scaled:
    whether a condition multiplies, or only adds.
    """

    encoder_dim: int
    encoder_rates: tuple[int, ...]
    latent_dim: int
    decoder_dim: int
    decoder_rates: tuple[int, ...]
    depthwise: bool
    input_rate_hz: int
    output_rate_hz: int
    early: bool
    bounds_hz: tuple[int, ...] | None
    scaled: bool

    @property
    def input_hop(self) -> int:
        """Samples that are encoded as one latent frame."""
        return math.prod(self.encoder_rates)

    @property
    def output_hop(self) -> int:
        """Samples that one latent frame is decoded to."""
        return math.prod(self.decoder_rates)

    @property
    def encoder_widths(self) -> tuple[int, ...]:
        """Channels before the first block, and after each."""
        return tuple(self.encoder_dim << block for block in range(len(self.encoder_rates) + 1))

    @property
    def decoder_widths(self) -> tuple[int, ...]:
        """Channels before the first block, and after each."""
        return tuple(self.decoder_dim >> block for block in range(len(self.decoder_rates) + 1))

    def frames(self, samples: int) -> int:
        """Latent frames of so many samples; the last frame is filled up with silence."""
        return -(-samples // self.input_hop)

    def condition(self, bounds_hz: Sequence[int]) -> int:
        """Which of the conditions, one more than there are bounds, is that of the output's rate."""
        return bisect_left(bounds_hz, self.output_rate_hz)


FIRST = VaeConfig(
    encoder_dim=128,
    encoder_rates=(2, 5, 8, 8),
    latent_dim=64,
    decoder_dim=1536,
    decoder_rates=(8, 8, 5, 2),
    depthwise=True,
    input_rate_hz=16_000,
    output_rate_hz=16_000,
    early=True,
    bounds_hz=None,
    scaled=False,
)
SECOND = VaeConfig(
    encoder_dim=128,
    encoder_rates=(2, 5, 8, 8),
    latent_dim=64,
    decoder_dim=2048,
    decoder_rates=(8, 6, 5, 2, 2, 2),
    depthwise=True,
    input_rate_hz=16_000,
    output_rate_hz=48_000,
    early=False,
    bounds_hz=(20_000, 30_000, 40_000),
    scaled=True,
)
DEFAULTS: dict[Architecture, VaeConfig] = {"voxcpm": FIRST, "voxcpm2": SECOND}


def parse_vae_config(root: Entry, architecture: Architecture) -> VaeConfig:
    """The VAE's sizes in a decoded config.json. Raises ModelFileError, which names the entry that is wrong."""
    entry, default = root.entry(KEY), DEFAULTS[architecture]
    rate_hz = entry.size("sample_rate", default.input_rate_hz, high=MAX_RATE_HZ)
    config = VaeConfig(
        encoder_dim=entry.size("encoder_dim", default.encoder_dim),
        encoder_rates=entry.sizes("encoder_rates", default.encoder_rates),
        latent_dim=entry.size("latent_dim", default.latent_dim),
        decoder_dim=entry.size("decoder_dim", default.decoder_dim),
        decoder_rates=entry.sizes("decoder_rates", default.decoder_rates),
        depthwise=entry.flag("depthwise", default.depthwise),
        input_rate_hz=rate_hz,
        output_rate_hz=_output_rate_hz(entry, architecture, rate_hz),
        early=default.early,
        bounds_hz=_bounds_hz(entry, default),
        scaled=_scaled(entry, architecture),
    )
    _check(entry, config)
    return config


def _output_rate_hz(entry: Entry, architecture: Architecture, input_rate_hz: int) -> int:
    if architecture == "voxcpm":
        return input_rate_hz
    return entry.size("out_sample_rate", SECOND.output_rate_hz, high=MAX_RATE_HZ)


def _bounds_hz(entry: Entry, default: VaeConfig) -> tuple[int, ...] | None:
    """Null stands for a decoder without conditions, and not for the default."""
    key = "sr_bin_boundaries"
    if default.bounds_hz is None or (key in entry.content and entry.content[key] is None):
        return None
    bounds_hz = entry.sizes(key, default.bounds_hz)
    if list(bounds_hz) != sorted(bounds_hz):
        raise entry.error(key, f"is {list(bounds_hz)}; the bounds must rise")
    return bounds_hz


def _scaled(entry: Entry, architecture: Architecture) -> bool:
    if architecture == "voxcpm":
        return False
    entry.only("cond_out_layer", False, False)
    return entry.only("cond_type", "scale_bias", *SCALES, *SHIFTS) in SCALES


def _check(entry: Entry, config: VaeConfig) -> None:
    entry.only("use_noise_block", False, False)
    if config.early and 1 in config.encoder_rates:
        raise entry.error("encoder_rates", f"is {list(config.encoder_rates)}; 2 or more are needed")
    if config.encoder_widths[-1] > MAX_SIZE:
        raise entry.error("encoder_dim", f"is {config.encoder_dim}; that doubled in each block gives too many channels")
    if config.decoder_widths[-1] < 1:
        blocks = len(config.decoder_rates)
        raise entry.error("decoder_dim", f"is {config.decoder_dim}; {blocks} blocks can't halve it each")
    for key, hop in (("encoder_rates", config.input_hop), ("decoder_rates", config.output_hop)):
        if hop > MAX_HOP:
            raise entry.error(key, f"multiply to {hop:,}; {MAX_HOP:,} samples per frame are possible")
