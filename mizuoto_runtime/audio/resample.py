"""Resampling by windowed sincs, each as a library that upstream models use has it.

Both filters are polyphase: of every `up` outputs, each is a dot product of its own taps with the inputs around it, and
the next `up` outputs are the same for inputs `down` samples later.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

HANN_ZEROS = 6
HANN_ROLLOFF = 0.99
MOST_TAPS = 1 << 22
"""More than rates that are in use need. For others a few phases at a time are computed, without their zeros."""


def resample_hann(samples: Tensor, rate_hz: int, target_hz: int) -> Tensor:
    """samples: float32 (channels, length) on the CPU → float32 (channels, length · target_hz / rate_hz, rounded up).

    As torchaudio's `Resample` by default: a sinc under a Hann window of HANN_ZEROS zero crossings to each side, cut off
    at HANN_ROLLOFF of the lower Nyquist frequency. The same tensor at one rate.
    """
    if rate_hz == target_hz:
        return samples
    divisor = math.gcd(rate_hz, target_hz)
    up, down = target_hz // divisor, rate_hz // divisor
    reach = math.ceil(HANN_ZEROS * down / (min(up, down) * HANN_ROLLOFF))
    channels, length = samples.shape
    padded = functional.pad(samples, (reach, reach + down))
    outputs = samples.new_empty(channels, length // down + 1, up)
    if up * (2 * reach + down) <= MOST_TAPS:
        taps = _hann_taps(range(up), range(-reach, reach + down), up, down)
        outputs[:] = functional.conv1d(padded[:, None], taps[:, None], stride=down).transpose(1, 2)
    else:
        phases = max(1, (2 * reach + 1) * up // down)
        for first in range(0, up, phases):
            last = min(first + phases, up)
            start, end = first * down // up, last * down // up + 2 * reach + 1
            taps = _hann_taps(range(first, last), range(start - reach, end - reach), up, down)
            outputs[..., first:last] = padded[:, start:].unfold(1, end - start, down)[:, : outputs.shape[1]] @ taps.T
    rounded = torch.tensor(up * length / down, dtype=torch.float32)  # as torchaudio rounds a length
    return outputs.reshape(channels, -1)[:, : int(rounded.ceil())]


def _hann_taps(phases: range, inputs: range, up: int, down: int) -> Tensor:
    """float32 (phases, inputs). Computed as torchaudio does it: the phases in float32, the rest in float64."""
    lowest = min(up, down) * HANN_ROLLOFF
    ahead = torch.arange(inputs.start, inputs.stop, dtype=torch.float64)[None] / down
    behind = (-torch.arange(phases.start, phases.stop)[:, None]).float() / up
    distance = ((behind + ahead) * lowest).clamp(-HANN_ZEROS, HANN_ZEROS)
    window = torch.cos(distance * math.pi / HANN_ZEROS / 2).square()
    angle = distance * math.pi
    sinc = torch.where(angle == 0, torch.ones_like(angle), angle.sin() / angle)
    return (sinc * (window * (lowest / down))).float()
