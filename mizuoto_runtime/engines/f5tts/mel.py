"""The mel spectrograms that the models were trained on, in float32: Vocos's and BigVGAN's.

Arithmetic: mel scales of HTK (O'Shaughnessy) and of Slaney's Auditory Toolbox, as torchaudio and librosa make them.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from .config import HOP, MEL_BANDS, RATE_HZ, WINDOW, MelKind

SMALLEST = 1e-5
BIGVGAN_EPSILON = 1e-9
SLANEY_LINEAR_HZ = 1000.0
SLANEY_HZ_PER_MEL = 200.0 / 3
SLANEY_LOG_STEP = math.log(6.4) / 27


def log_mel(samples: Tensor, kind: MelKind, bands: int = MEL_BANDS) -> Tensor:
    """(length) float32 samples at 24,000 Hz → (frames, bands) float32.

    frames: length // 256 + 1 for Vocos, (length − 256) // 256 + 1 for BigVGAN.
    """
    window = torch.hann_window(WINDOW, device=samples.device)
    centred = kind == "vocos"
    if not centred:
        edge = (WINDOW - HOP) // 2
        samples = functional.pad(samples[None], (edge, edge), mode="reflect")[0]
    spectrum = torch.stft(
        samples, WINDOW, HOP, WINDOW, window, center=centred, pad_mode="reflect", onesided=True, return_complex=True
    )
    if centred:
        magnitude = spectrum.abs()
        mel = (magnitude.T @ htk_filters(bands).to(samples.device)).T
    else:
        magnitude = torch.sqrt(torch.view_as_real(spectrum).square().sum(-1) + BIGVGAN_EPSILON)
        mel = slaney_filters(bands).to(samples.device) @ magnitude
    return mel.clamp(min=SMALLEST).log().T.contiguous()


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


@cache
def slaney_filters(bands: int) -> Tensor:
    """(bands, frequencies) float32: triangles on Slaney's scale, each with an area of 1 per Hz."""
    frequencies = torch.linspace(0, RATE_HZ / 2, WINDOW // 2 + 1, dtype=torch.float64)
    linear = SLANEY_LINEAR_HZ / SLANEY_HZ_PER_MEL
    highest = linear + math.log(RATE_HZ / 2 / SLANEY_LINEAR_HZ) / SLANEY_LOG_STEP
    mels = torch.linspace(0.0, highest, bands + 2, dtype=torch.float64)
    logarithmic = SLANEY_LINEAR_HZ * torch.exp(SLANEY_LOG_STEP * (mels - linear))
    corners = torch.where(mels < linear, SLANEY_HZ_PER_MEL * mels, logarithmic)
    widths = corners[1:] - corners[:-1]
    distances = corners[:, None] - frequencies[None]
    rising = -distances[:-2] / widths[:-1, None]
    falling = distances[2:] / widths[1:, None]
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    return (triangles * (2.0 / (corners[2:] - corners[:-2]))[:, None]).float()
