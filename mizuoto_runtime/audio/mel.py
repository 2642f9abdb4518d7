"""Log mel spectrograms of 24 kHz sound, with a window of 1024 and a hop of 256, as BigVGAN's training code has them.

Slaney's mel scale and areas (Auditory Toolbox, version 2, Interval Research, 1998), as librosa's defaults have them.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

RATE_HZ = 24_000
WINDOW = 1024
HOP = 256
LOWEST_HZ, HIGHEST_HZ = 0.0, 12_000.0
MAGNITUDE_EPSILON = 1e-9
LOWEST = 1e-5

_LINEAR_HZ = 200.0 / 3
_KNEE_HZ = 1000.0
_KNEE_MEL = _KNEE_HZ / _LINEAR_HZ
_LOG_STEP = math.log(6.4) / 27


def slaney_log_mel(samples: Tensor, bands: int) -> Tensor:
    """samples: float32 (length) at 24 kHz on the CPU, over 384 → float32 (length // 256, bands)."""
    edge = (WINDOW - HOP) // 2
    padded = functional.pad(samples[None, None], (edge, edge), mode="reflect")[0]
    spectrum = torch.stft(padded, WINDOW, HOP, window=torch.hann_window(WINDOW), center=False, return_complex=True)
    magnitudes = (torch.view_as_real(spectrum).square().sum(-1) + MAGNITUDE_EPSILON).sqrt()
    mel = torch.matmul(slaney_filters(bands), magnitudes)
    return mel.clamp(min=LOWEST).log()[0].T


@functools.lru_cache(maxsize=4)
def slaney_filters(bands: int) -> Tensor:
    """Triangles of equal area, float32 (bands, bins); rounded to float32 before they are scaled, as librosa does."""
    bins_hz = np.linspace(0, RATE_HZ / 2, 1 + WINDOW // 2)
    edges_hz = _to_hz(np.linspace(_to_mel(LOWEST_HZ), _to_mel(HIGHEST_HZ), bands + 2))
    widths_hz = np.diff(edges_hz)[:, None]
    rising = (bins_hz[None] - edges_hz[:-2, None]) / widths_hz[:-1]
    falling = (edges_hz[2:, None] - bins_hz[None]) / widths_hz[1:]
    triangles = np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
    return torch.from_numpy((triangles * (2.0 / (edges_hz[2:] - edges_hz[:-2]))[:, None]).astype(np.float32))


def _to_mel(hz: float) -> float:
    return hz / _LINEAR_HZ if hz < _KNEE_HZ else _KNEE_MEL + math.log(hz / _KNEE_HZ) / _LOG_STEP


def _to_hz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mels < _KNEE_MEL, mels * _LINEAR_HZ, _KNEE_HZ * np.exp(_LOG_STEP * (mels - _KNEE_MEL)))
