"""Resampling as upstream models have it: by torchaudio's filter, computed here, and by soxr itself.

torchaudio's is a windowed sinc, polyphase: of every `up` outputs, each is a dot product of its own taps with the inputs
around it, and the next `up` outputs are the same for inputs `down` samples later. Rates are reduced by their greatest
divisor.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import MissingDependency

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
            start, end = first * down // up, (last - 1) * down // up + 2 * reach + 1
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


def resample_soxr(samples: Tensor, rate_hz: int, target_hz: int) -> Tensor:
    """samples: float32 (length) on the CPU → float32 (length · target_hz / rate_hz); the same tensor at one rate.

    As librosa does by default: soxr's HQ recipe, the length rounded up, with zeros after what soxr gives.
    MissingDependency without the package soxr.
    """
    if rate_hz == target_hz:
        return samples
    try:
        import soxr
    except ImportError as error:
        raise MissingDependency(
            f"a recording of {rate_hz:,} Hz needs the package soxr to become one of {target_hz:,} Hz: pip install soxr"
        ) from error
    resampled = torch.from_numpy(soxr.resample(samples.numpy(), rate_hz, target_hz, quality="HQ"))
    length = math.ceil(len(samples) * (target_hz / rate_hz))
    return functional.pad(resampled, (0, length - len(resampled)))
