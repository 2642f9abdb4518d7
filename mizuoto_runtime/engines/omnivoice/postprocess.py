"""What is done to decoded speech before it is heard: joints, silence, level, fades and silence around it.

The rules are those of `_decode_and_post_process` and `utils/audio.py` in omnivoice 0.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .reference import QUIET_RMS
from .silence import remove_silence

JOINT_SECONDS = 0.3
"""A third of it fades out, a third is silent, a third fades in."""
PEAK = 0.5
LEAST_PEAK = 1e-6


def join_chunks(chunks: Sequence[Tensor], rate_hz: int) -> Tensor:
    """chunks: float32 (1, length) each, at least one → one behind the other, (1, length), with joints between them."""
    if len(chunks) == 1:
        return chunks[0]
    edge = int(JOINT_SECONDS * rate_hz) // 3
    joined = np.zeros(sum(chunk.shape[1] for chunk in chunks) + edge * (len(chunks) - 1), dtype=np.float32)
    end = 0
    for index, chunk in enumerate(chunks):
        if index:
            _fade(joined[max(0, end - edge) : end], out=True)
            end += edge
        part = joined[end : end + chunk.shape[1]]
        part[:] = chunk[0].numpy()
        if index:
            _fade(part[:edge], out=False)
        end += len(part)
    return torch.from_numpy(joined)[None]


def finish(
    wave: Tensor,
    rate_hz: int,
    *,
    rms: float | None,
    trim: bool = True,
    pad_seconds: float = 0.1,
    fade_seconds: float = 0.1,
) -> Tensor:
    """wave: float32 (1, length) on the CPU → the same, as it is to be heard.

    rms: the reference's, whose level is restored; None: there was none, so the peak becomes PEAK. trim: whether long
    silences, and those at the edges, are cut, which clips and rounds all samples to 16 bits. Empty if all is silent.
    """
    samples = wave[0].numpy()
    if trim:
        samples = remove_silence(samples, rate_hz, middle_ms=500, lead_ms=100, trail_ms=100)
    if not len(samples):
        return torch.zeros(1, 0)
    samples = _leveled(samples, rms)
    edge = min(int(fade_seconds * rate_hz), len(samples) // 2)
    padding = int(pad_seconds * rate_hz)
    finished = np.zeros(len(samples) + 2 * padding, dtype=np.float32)
    heard = finished[padding : padding + len(samples)]
    heard[:] = samples
    _fade(heard[:edge], out=False)
    _fade(heard[len(heard) - edge :], out=True)
    return torch.from_numpy(finished)[None]


def _leveled(samples: NDArray[np.float32], rms: float | None) -> NDArray[np.float32]:
    if rms is not None:
        return samples * rms / QUIET_RMS if rms < QUIET_RMS else samples
    peak = np.abs(samples).max()
    return samples / peak * PEAK if peak > LEAST_PEAK else samples


def _fade(samples: NDArray[np.float32], *, out: bool) -> None:
    """In place, to or from silence."""
    start, stop = (1, 0) if out else (0, 1)
    samples *= np.linspace(start, stop, len(samples), dtype=np.float32)
