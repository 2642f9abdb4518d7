"""The mel spectrograms that the models were trained on, in float32: Vocos's and BigVGAN's.

Arithmetic: HTK's mel scale (O'Shaughnessy), as torchaudio makes it; Slaney's is in `audio/mel.py`.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from ...audio.mel import slaney_log_mel
from .config import HOP, MEL_BANDS, RATE_HZ, WINDOW, MelKind

SMALLEST = 1e-5


def log_mel(samples: Tensor, kind: MelKind, bands: int = MEL_BANDS) -> Tensor:
    """(length) float32 samples at 24,000 Hz on the CPU → (frames, bands) float32.

    frames: length // 256 + 1 for Vocos, length // 256 for BigVGAN.
    """
    if kind == "bigvgan":
        return slaney_log_mel(samples, bands).contiguous()
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(samples, WINDOW, HOP, WINDOW, window, center=True, pad_mode="reflect", return_complex=True)
    return (spectrum.abs().T @ htk_filters(bands)).clamp(min=SMALLEST).log().contiguous()


def least_samples(kind: MelKind) -> int:
    """Samples that mirroring the edges needs."""
    return (WINDOW // 2 if kind == "vocos" else (WINDOW - HOP) // 2) + 1


@cache
def htk_filters(bands: int) -> Tensor:
    """(frequencies, bands) float32: triangles on the HTK scale, each with a peak of 1."""
    frequencies = torch.linspace(0, RATE_HZ // 2, WINDOW // 2 + 1)
    highest = 2595.0 * math.log10(1.0 + RATE_HZ / 2 / 700.0)
    corners = 700.0 * (10.0 ** (torch.linspace(0.0, highest, bands + 2) / 2595.0) - 1.0)
    widths = corners[1:] - corners[:-1]
    distances = corners[None] - frequencies[:, None]
    falling = -distances[:, :-2] / widths[:-1]
    rising = distances[:, 2:] / widths[1:]
    return torch.minimum(falling, rising).clamp(min=0.0)
