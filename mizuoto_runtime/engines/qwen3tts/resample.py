"""Resampling by a windowed sinc: linear phase, flat up to 91 % of the lower Nyquist frequency, gone above it.

The window is Kaiser's (Nonrecursive digital filter design using the I0-sinh window function, 1974). Its three numbers
are measured: they give the impulse response of soxr's HQ recipe, which upstream uses, within 2e-5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

CUTOFF = 0.9569
"""Where the filter is down by half, in Nyquist frequencies of the lower rate."""
BETA = 12.6
REACH = 95.5
"""Samples of the lower rate to each side that the filter extends over."""


def resample(samples: Tensor, rate_hz: int, target_hz: int) -> Tensor:
    """samples: float32 (length) on the CPU → float32 (length · target_hz / rate_hz); the same tensor at one rate.

    Computed in float64. As librosa does it, the length is rounded up, with zeros after what soxr would give.
    """
    if rate_hz == target_hz:
        return samples
    divisor = math.gcd(rate_hz, target_hz)
    up, down = target_hz // divisor, rate_hz // divisor
    outputs = torch.zeros(math.ceil(len(samples) * (target_hz / rate_hz)))
    length = (2 * len(samples) * up + down) // (2 * down)
    reach = math.ceil(REACH * max(1.0, down / up))
    padded = functional.pad(samples.double(), (reach - 1, reach + down))
    for phase in range(min(up, length)):
        start, offset = divmod(phase * down, up)
        count = len(range(phase, length, up))
        windows = padded.as_strided((count, 2 * reach), (down, 1), start)
        outputs[phase:length:up] = (windows @ _taps(offset / up, reach, min(1.0, up / down))).float()
    return outputs


def _taps(offset: float, reach: int, narrow: float) -> Tensor:
    """The filter, float64 (2 · reach), for an output `offset` of a sample after an input.

    narrow: how much lower the lower rate is than the input's.
    """
    distance = (torch.arange(1 - reach, reach + 1, dtype=torch.float64) - offset) * narrow
    beta = torch.tensor(BETA, dtype=torch.float64)
    window = torch.special.i0(beta * (1 - (distance / REACH).square()).clamp(min=0).sqrt()) / torch.special.i0(beta)
    taps: Tensor = narrow * CUTOFF * torch.sinc(CUTOFF * distance) * window * (distance.abs() <= REACH)
    return taps
