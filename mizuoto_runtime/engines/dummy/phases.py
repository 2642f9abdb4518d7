"""The dummy engine at work: a few harmonics for each character."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...library import ModelFiles
from ...loader import Loader
from ...memory.phase import PhaseContext
from ...types import Audio

RATE_HZ = 24_000
LOWEST_HZ = 110.0
OCTAVE_STEPS = 12
PITCHES = 36
HARMONICS = 4
PEAK = 0.3
EDGE_SECONDS = 0.004
BYTES_PER_SAMPLE = 4
MAX_OUTPUT_BYTES = 4 << 30


class Oscillator(nn.Module):
    """phase: (length,) in radians → (length,) samples, a weighted sum of harmonics."""

    def __init__(self) -> None:
        super().__init__()
        loudness = torch.tensor([2.0**-order for order in range(HARMONICS)])
        self.loudness = nn.Parameter(PEAK * loudness / loudness.sum())

    def forward(self, phase: Tensor) -> Tensor:
        orders = torch.arange(1, HARMONICS + 1, dtype=phase.dtype, device=phase.device)
        return torch.sin(phase[:, None] * orders) @ self.loudness


@dataclass(frozen=True)
class DummyModel:
    oscillator: nn.Module


def load(files: ModelFiles, loader: Loader) -> DummyModel:
    return DummyModel(loader.handle("oscillator", Oscillator()).module)


def memory_required(model: DummyModel, *, text: str, tone_seconds: float, noise: float) -> int:
    """Bytes of one tone in float32: its time, its edge, its harmonics and their sum."""
    return BYTES_PER_SAMPLE * round(tone_seconds * RATE_HZ) * (HARMONICS + 4)


def tones(ctx: PhaseContext, model: DummyModel, *, text: str, tone_seconds: float, noise: float) -> Audio:
    """(1, characters · tone length) samples at 24,000 Hz; `noise` adds white noise from the seed."""
    length_samples = round(tone_seconds * RATE_HZ)
    size_bytes = BYTES_PER_SAMPLE * length_samples * len(text)
    if size_bytes > MAX_OUTPUT_BYTES:
        raise InputError(
            f"{len(text):,} tones of {tone_seconds:g} seconds are {size_bytes:,} bytes, {MAX_OUTPUT_BYTES:,} at most; "
            "shorten the text or the tones"
        )
    samples = torch.zeros(len(text), length_samples)
    for index, char in enumerate(text):
        ctx.progress(index, len(text))
        if not char.isspace():
            samples[index] = _tone(model.oscillator, char, length_samples, ctx.device)
        if noise:
            samples[index] += noise * torch.randn(length_samples, generator=ctx.rng)
    ctx.progress(len(text), len(text))
    return Audio(samples.reshape(1, -1), RATE_HZ)


def _tone(oscillator: nn.Module, char: str, length_samples: int, device: str) -> Tensor:
    pitch_hz = LOWEST_HZ * 2 ** (ord(char.lower()[0]) % PITCHES / OCTAVE_STEPS)
    time = torch.arange(length_samples, dtype=torch.float32, device=device) / RATE_HZ
    edge = (torch.minimum(time, time.flip(0)) / EDGE_SECONDS).clamp(max=1.0)
    tone: Tensor = oscillator(2 * math.pi * pitch_hz * time) * edge
    return tone.cpu()
