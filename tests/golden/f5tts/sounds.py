"""Recordings that are the same to the last bit wherever they are made: whole numbers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Stretch = tuple[float, int]
"""Seconds, and the amplitude in 16-bit steps."""


def recording(stretches: Sequence[Stretch], rate_hz: int, channels: int, seed: int) -> NDArray[np.int16]:
    """int16 (frames, channels): each stretch is noise under a slow tremolo; 0 is digital silence."""
    parts = []
    for number, (seconds, amplitude) in enumerate(stretches):
        frames = int(seconds * rate_hz)
        steps = np.arange(frames * channels, dtype=np.int64).reshape(frames, channels)
        wave = (steps // channels * 7) % 2048 - 1024
        parts.append((noise(steps, seed * 1000 + number) * amplitude * np.abs(wave) >> 26).astype(np.int16))
    return np.concatenate(parts)


def widened(samples: NDArray[np.int16], seed: int) -> NDArray[np.int32]:
    """Of 16 bits → of 24 bits: the same ones first, but silence stays silent."""
    steps = np.arange(samples.size, dtype=np.int64).reshape(samples.shape)
    lower = np.where(samples, noise(steps, seed) & 0xFF, 0)
    return (samples.astype(np.int64) * 256 + lower).astype(np.int32)


def noise(steps: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """For each step a number from −32,768 to 32,767: a multiplicative hash of the step and the seed."""
    mixed = (steps.astype(np.uint64) + np.uint64(seed * 7_919 + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(48)).astype(np.int64) - 32_768
