"""A Piper voice as two modules that are placed apart: text → statistics and durations, then latents → samples.

Arithmetic and order of the random draws: VITS (https://arxiv.org/abs/2106.06103) as piper-tts 1.8.0 runs it. There the
graph draws normal numbers twice, first (1, 2, symbols) for the durations, then (1, latent channels, frames) for the
latents; `duration_noise` and `latent_noise` draw the same shapes, in float32 on the CPU, so that the place where a
module computes never changes a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator as RandomGenerator
from torch import Tensor, nn

from ...errors import InputError, ModelFileError
from .architecture import StochasticDurationConfig, VitsConfig
from .durations import PlainDurations, StochasticDurations
from .encoder import TextEncoder
from .flow import Flow
from .generator import Generator
from .layers import channels_last, embedding

MAX_FRAMES = 1 << 16


@dataclass(frozen=True)
class Encoded:
    """What the encoder knows about a sentence, one column per symbol.

    mean, log_scale: float32 (latent channels, symbols). durations: int64 (symbols), in frames.
    speaker: float32 (1, speaker channels, 1, 1), or None where the voice has one speaker.
    """

    mean: Tensor
    log_scale: Tensor
    durations: Tensor
    speaker: Tensor | None

    @property
    def length_frames(self) -> int:
        """Frames that the decoder makes of it: at least one."""
        return max(int(self.durations.sum()), 1)


def duration_noise(generator: RandomGenerator, symbols: int) -> Tensor:
    """Normal numbers for the durations of `symbols` symbols: float32 (1, 2, symbols), on the CPU."""
    return torch.randn(1, 2, symbols, generator=generator)


def latent_noise(generator: RandomGenerator, encoded: Encoded) -> Tensor:
    """Normal numbers for the latents of `encoded`: float32 (1, latent channels, frames), on the CPU."""
    return torch.randn(1, encoded.mean.shape[0], encoded.length_frames, generator=generator)


class VoiceEncoder(nn.Module):
    """Text encoder, duration predictor and, where there are several speakers, their embedding."""

    def __init__(self, config: VitsConfig) -> None:
        super().__init__()
        self.config = config
        channels = config.text.channels
        self.text = TextEncoder(config.num_symbols, config.latent_channels, config.text)
        self.durations: StochasticDurations | PlainDurations
        if isinstance(config.durations, StochasticDurationConfig):
            self.durations = StochasticDurations(channels, config.speaker_channels, config.durations)
        else:
            self.durations = PlainDurations(channels, config.speaker_channels, config.durations)
        self.speakers = embedding(config.num_speakers, config.speaker_channels) if config.speaker_channels else None

    @torch.no_grad()
    def forward(
        self,
        ids: Tensor,
        *,
        noise: Tensor,
        noise_w: float,
        length_scale: float,
        speaker_id: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Encoded:
        """Encode one sentence.

        ids: int64 (1, symbols), on the module's device. noise: float32 (1, 2, symbols) from `duration_noise`; read
        only if `durations.needs_noise`. speaker_id: required if the voice has several speakers. check: raises to
        cancel; called before each layer.

        Raises InputError for an id or a speaker that the voice hasn't, and if the sentence would last more than
        MAX_FRAMES; ModelFileError if the weights give no numbers.
        """
        self._check_ids(ids)
        speaker = self._speaker(speaker_id, ids.device)
        hidden, mean, log_scale = self.text(ids, check)
        scaled = noise.to(hidden.device) * noise_w
        lengths = torch.exp(self.durations(hidden, scaled, speaker)) * length_scale
        return Encoded(mean, log_scale, _whole_frames(lengths), speaker)

    def _check_ids(self, ids: Tensor) -> None:
        symbols = self.config.num_symbols
        if ids.dim() != 2 or ids.shape[0] != 1 or ids.shape[1] == 0:
            raise InputError(f"symbol ids have the shape {tuple(ids.shape)}; (1, at least 1) is needed")
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= symbols:
            raise InputError(f"symbol ids go from {low} to {high}; this voice has 0 to {symbols - 1}")

    def _speaker(self, speaker_id: int | None, device: torch.device) -> Tensor | None:
        if self.speakers is None:
            return None
        speakers = self.config.num_speakers
        if speaker_id is None or not 0 <= speaker_id < speakers:
            raise InputError(f"speaker {speaker_id!r} is unknown; this voice has the speakers 0 to {speakers - 1}")
        vector: Tensor = self.speakers(torch.tensor([speaker_id], device=device))
        return vector[:, :, None, None]


class VoiceDecoder(nn.Module):
    """Flow and generator."""

    def __init__(self, config: VitsConfig) -> None:
        super().__init__()
        self.config = config
        self.flow = Flow(config.latent_channels, config.speaker_channels, config.flow)
        self.generator = Generator(config.latent_channels, config.speaker_channels, config.generator)

    @torch.no_grad()
    def forward(
        self, encoded: Encoded, *, noise: Tensor, noise_scale: float, check: Callable[[], None] = lambda: None
    ) -> Tensor:
        """Samples of one sentence: float32 (frames × hop length), mostly between −1 and 1, on the module's device.

        noise: float32 (1, latent channels, frames) from `latent_noise`. check: raises to cancel; called often.
        """
        z = stretch(encoded, noise.to(encoded.mean.device), noise_scale)
        return self.decode_latents(z, encoded.speaker, check)

    @torch.no_grad()
    def decode_latents(self, z: Tensor, speaker: Tensor | None, check: Callable[[], None] = lambda: None) -> Tensor:
        """Samples from latents (1, latent channels, frames) as the text predicts them, before the flow."""
        samples: Tensor = self.generator(self.flow(channels_last(z), speaker, check), speaker, check)
        return samples


def stretch(encoded: Encoded, noise: Tensor, noise_scale: float) -> Tensor:
    """Repeat each symbol's statistics for its duration and draw the latents; noise: (1, latent channels, frames)."""
    durations = encoded.durations
    if int(durations.sum()) == 0:
        return noise * noise_scale
    mean = encoded.mean.repeat_interleave(durations, dim=1)
    log_scale = encoded.log_scale.repeat_interleave(durations, dim=1)
    return mean + noise * torch.exp(log_scale) * noise_scale


def _whole_frames(lengths: Tensor) -> Tensor:
    """Durations (symbols) rounded up to whole frames."""
    total = float(lengths.cpu().double().sum())
    if math.isnan(total):
        raise ModelFileError("the voice's durations are not numbers, so its weights are damaged; download it again")
    if total > MAX_FRAMES:
        raise InputError(
            f"one sentence would last {total:,.0f} frames; {MAX_FRAMES:,} are the most. Lower length_scale or noise_w, "
            "or split the text."
        )
    return torch.ceil(lengths).long()
