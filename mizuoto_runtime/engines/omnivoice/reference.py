"""A recording, of any rate, channels and length → samples whose codes are the voice that speech is to follow.

The rules are those of `create_voice_clone_prompt` in omnivoice 0.2.1, for a recording whose transcript is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audio.recording import first_audible, recording_batch, short_notes
from ...audio.resample import resample_hann
from ...errors import InputError
from .codec_config import CodecConfig
from .silence import remove_silence

QUIET_RMS = 0.1
"""A recording that is quieter is raised to this; what is made from it is lowered again."""
LONG_SECONDS = 20.0


@dataclass(frozen=True)
class Reference:
    """samples: float32 (1, length), mono, at the codec's rate, on the CPU, a multiple of its hop_length.

    rms: the recording's at that rate, before anything was raised or cut. notes: for the request's warnings.
    """

    samples: Tensor
    rms: float
    notes: tuple[str, ...] = ()


def prepare_reference(samples: Tensor, rate_hz: int, config: CodecConfig, *, preprocess: bool = True) -> Reference:
    """samples: (length), (channels, length) or (batch, channels, length), full scale 1.

    Of a batch the first recording that isn't silent is taken. preprocess: whether long silences, and those at the
    edges, are cut, which rounds all samples to 16 bits. InputError for silence and for what is no sound.
    """
    channels, notes = first_audible(recording_batch(samples, rate_hz))
    mono = channels.numpy()
    if len(mono) > 1:
        mono = np.mean(mono, axis=0, keepdims=True)
    mono = resample_hann(torch.from_numpy(mono), rate_hz, config.rate_hz, precise=False).numpy()
    rms = float(np.sqrt(np.mean(mono**2)))
    if 0 < rms < QUIET_RMS:
        mono = mono * QUIET_RMS / rms
    wave = mono[0]
    if preprocess:
        wave = remove_silence(wave, config.rate_hz, middle_ms=200, lead_ms=100, trail_ms=200)
    return Reference(_whole_frames(wave, config), rms, notes + _notes(len(wave) / config.rate_hz))


def _whole_frames(wave: np.ndarray, config: CodecConfig) -> Tensor:
    """(1, length), without what is left over of a frame at the end."""
    hop = config.hop_length
    if len(wave) < hop:
        raise InputError(
            f"the reference has {len(wave):,} samples of sound at {config.rate_hz:,} Hz, {hop:,} are needed; "
            "make it longer, 3 to 10 s are best"
        )
    return torch.from_numpy(np.ascontiguousarray(wave[None, : len(wave) // hop * hop]))


def _notes(seconds: float) -> tuple[str, ...]:
    if seconds <= LONG_SECONDS:
        return short_notes(seconds, "3 to 10 s")
    return (
        f"the reference is {seconds:.1f} s long; more than {LONG_SECONDS:g} s make speech slower and less like the "
        "voice, 3 to 10 s are best",
    )
