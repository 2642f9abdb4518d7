"""Resampling by windowed sincs, each as a library that upstream models use has it.

Both filters are polyphase: of every `up` outputs, each is a dot product of its own taps with the inputs around it, and
the next `up` outputs are the same for inputs `down` samples later. Rates are reduced by their greatest divisor.

The Kaiser window (Nonrecursive digital filter design using the I0-sinh window function, 1974) has three numbers that
are measured: they give the impulse response of soxr's HQ recipe within 2e-5. That filter has a linear phase, is flat up
to 91 % of the lower Nyquist frequency and lets nothing through above it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

KAISER_CUTOFF = 0.9569
"""Where the filter is down by half, in Nyquist frequencies of the lower rate."""
KAISER_BETA = 12.6
KAISER_REACH = 95.5
"""Samples of the lower rate to each side that the filter extends over."""
HANN_ZEROS = 6
HANN_ROLLOFF = 0.99
MOST_TAPS = 1 << 22
"""More than rates that are in use need. For others a few phases at a time are computed, without their zeros."""


def resample_hann(samples: Tensor, rate_hz: int, target_hz: int, *, precise: bool = True) -> Tensor:
    """samples: float32 (channels, length) → float32 (channels, length · target_hz / rate_hz, rounded up).

    As torchaudio's `Resample` by default: a sinc under a Hann window of HANN_ZEROS zero crossings to each side, cut off
    at HANN_ROLLOFF of the lower Nyquist frequency. precise: whether the filter is computed in float64, as there, and
    not in float32, as in torchaudio's `functional.resample`. The same tensor at one rate.
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
        taps = _hann_taps(range(up), range(-reach, reach + down), up, down, precise).to(samples.device)
        outputs[:] = functional.conv1d(padded[:, None], taps[:, None], stride=down).transpose(1, 2)
    else:
        phases = max(1, (2 * reach + 1) * up // down)
        for first in range(0, up, phases):
            last = min(first + phases, up)
            start, end = first * down // up, last * down // up + 2 * reach + 1
            taps = _hann_taps(range(first, last), range(start - reach, end - reach), up, down, precise)
            taps = taps.to(samples.device)
            outputs[..., first:last] = padded[:, start:].unfold(1, end - start, down)[:, : outputs.shape[1]] @ taps.T
    rounded = torch.tensor(up * length / down, dtype=torch.float32)  # as torchaudio rounds a length
    return outputs.reshape(channels, -1)[:, : int(rounded.ceil())]


def _hann_taps(phases: range, inputs: range, up: int, down: int, precise: bool) -> Tensor:
    """float32 (phases, inputs). Computed as torchaudio does it: the phases in float32, the rest so unless `precise`."""
    lowest = min(up, down) * HANN_ROLLOFF
    dtype = torch.float64 if precise else torch.float32
    ahead = torch.arange(inputs.start, inputs.stop, dtype=dtype)[None] / down
    behind = (-torch.arange(phases.start, phases.stop)[:, None]).float() / up
    distance = ((behind + ahead) * lowest).clamp(-HANN_ZEROS, HANN_ZEROS)
    window = torch.cos(distance * math.pi / HANN_ZEROS / 2).square()
    angle = distance * math.pi
    sinc = torch.where(angle == 0, torch.ones_like(angle), angle.sin() / angle)
    return (sinc * (window * (lowest / down))).float()


def resample_kaiser(samples: Tensor, rate_hz: int, target_hz: int) -> Tensor:
    """samples: float32 (length) on the CPU → float32 (length · target_hz / rate_hz); the same tensor at one rate.

    As librosa does with soxr: the length is rounded up, with zeros after what soxr would give. Computed in float64.
    """
    if rate_hz == target_hz:
        return samples
    divisor = math.gcd(rate_hz, target_hz)
    up, down = target_hz // divisor, rate_hz // divisor
    outputs = torch.zeros(math.ceil(len(samples) * (target_hz / rate_hz)))
    length = (2 * len(samples) * up + down) // (2 * down)
    reach = math.ceil(KAISER_REACH * max(1.0, down / up))
    padded = functional.pad(samples.double(), (reach - 1, reach + down))
    for phase in range(min(up, length)):
        start, offset = divmod(phase * down, up)
        count = len(range(phase, length, up))
        windows = padded.as_strided((count, 2 * reach), (down, 1), start)
        outputs[phase:length:up] = (windows @ _kaiser_taps(offset / up, reach, min(1.0, up / down))).float()
    return outputs


def _kaiser_taps(offset: float, reach: int, narrow: float) -> Tensor:
    """The filter, float64 (2 · reach), for an output `offset` of a sample after an input.

    narrow: how much lower the lower rate is than the input's.
    """
    distance = (torch.arange(1 - reach, reach + 1, dtype=torch.float64) - offset) * narrow
    beta = torch.tensor(KAISER_BETA, dtype=torch.float64)
    bell = (1 - (distance / KAISER_REACH).square()).clamp(min=0).sqrt()
    window = torch.special.i0(beta * bell) / torch.special.i0(beta)
    taps = narrow * KAISER_CUTOFF * torch.sinc(KAISER_CUTOFF * distance) * window
    inside: Tensor = taps * (distance.abs() <= KAISER_REACH)
    return inside
