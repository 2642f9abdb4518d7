"""A recording, of any rate, channels and length → the voice that speech is to follow, or what is to be edited.

The rules are those of f5-tts 1.1.22 (`preprocess_ref_audio_text`, `infer_batch_process`). They work on whole numbers;
see `silence.to_pcm` for how other samples become such.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audio.recording import first_audible, recording_batch, short_notes
from ...audio.resample import resample_hann
from ...errors import InputError
from .silence import EDGE_DB, prepared, tail_frames, to_pcm

RATE_HZ = 24_000
HOP = 256
QUIET_RMS = 0.1
"""A recording that is quieter is raised to this; what is made from it is lowered again."""


@dataclass(frozen=True)
class Reference:
    """samples: float32 (length), mono, at 24 kHz, on the CPU, raised if they were quiet.

    rms: before that, at the recording's own rate. seconds: the length there. notes: for the request's warnings.
    """

    samples: Tensor
    rms: float
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def frames(self) -> int:
        """Whole mel frames; the spectrogram has one more."""
        return len(self.samples) // HOP


def prepare_reference(samples: Tensor, rate_hz: int) -> Reference:
    """samples: (length), (channels, length) or (batch, channels, length), full scale 1.

    Of a batch the first recording that isn't silent is taken. Silence at its edges goes, longer silences are shortened,
    and of more than 12 s the beginning is taken. InputError for silence and for what is no sound.
    """
    channels, notes = first_audible(recording_batch(samples, rate_hz))
    pcm, whole = prepared(to_pcm(channels.numpy(), rate_hz))
    if not pcm.samples.any():
        raise InputError(
            f"the reference is silent: nothing in it is louder than {EDGE_DB:g} dB of full scale; "
            "choose a recording in which somebody speaks, or raise its volume"
        )
    kept = torch.from_numpy(np.ascontiguousarray(pcm.samples.T)).float() / pcm.full_scale
    used_seconds = (len(pcm.samples) - tail_frames(pcm.rate_hz)) / pcm.rate_hz
    notes += _notes(channels.shape[1] / rate_hz, used_seconds, whole)
    return _leveled(kept, pcm.rate_hz, notes)


def prepare_whole(samples: Tensor, rate_hz: int) -> Reference:
    """As `prepare_reference`, but nothing is cut and nothing rounded: for a recording that is to be edited."""
    name = "recording"
    channels, notes = first_audible(recording_batch(samples, rate_hz, name), name)
    return _leveled(channels, rate_hz, notes, name)


def restore_level(samples: Tensor, rms: float) -> Tensor:
    """Speech made from a reference, as loud as that was. rms: the reference's."""
    return samples * rms / QUIET_RMS if rms < QUIET_RMS else samples


def _leveled(channels: Tensor, rate_hz: int, notes: tuple[str, ...], name: str = "reference") -> Reference:
    """channels: float32 (channels, length)."""
    mono = channels.mean(dim=0, keepdim=True) if len(channels) > 1 else channels
    rms = mono.square().mean().sqrt()
    if not rms > 0:
        raise InputError(f"the {name}'s channels cancel each other out; give one of them only")
    raised = mono * QUIET_RMS / rms if rms < QUIET_RMS else mono
    resampled = resample_hann(raised, rate_hz, RATE_HZ)[0]
    return Reference(resampled, float(rms), channels.shape[1] / rate_hz, notes)


def _notes(given_seconds: float, used_seconds: float, whole: bool) -> tuple[str, ...]:
    short = short_notes(used_seconds, "3 to 12 s")
    if short or whole:
        return short
    return (
        f"the reference is {given_seconds:.1f} s long; its first {used_seconds:.1f} s of sound were used, long "
        "silences not counted. A transcript must be of that part only",
    )
