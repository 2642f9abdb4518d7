"""A reference recording, of any rate and length → what the codec and the speaker encoder take."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...audio.recording import first_audible, recording_batch, short_notes
from ...audio.resample import resample_soxr
from ...errors import InputError

RATE_HZ = 24_000
LONGEST_SECONDS = 60
SHORTEST_SECONDS = 0.1
BLOCK_SECONDS = 0.02
SPEECH_OF_PEAK = 0.03
"""A block counts as speech if its loudness is at least this much of the loudest block's."""


@dataclass(frozen=True)
class Reference:
    """samples: float32 (length), mono, at 24 kHz, on the CPU. notes: what was left out, for the request's warnings."""

    samples: Tensor
    notes: tuple[str, ...]


def prepare_reference(samples: Tensor, rate_hz: int) -> Reference:
    """samples: (length), (channels, length) or (batch, channels, length), of any dtype; whole numbers aren't rescaled.

    Channels are averaged. Of a batch the first recording that isn't silent is taken; of a long recording the part with
    the most speech. InputError for silence, and for what is too short or no sound.
    """
    batch = recording_batch(samples, rate_hz)
    if batch.shape[2] < SHORTEST_SECONDS * rate_hz:
        seconds = batch.shape[2] / rate_hz
        raise InputError(f"the reference is {seconds:.2f} s long; {SHORTEST_SECONDS} s are the least, 3 to 15 are best")
    channels, notes = first_audible(batch)
    mono = channels.mean(dim=0) if len(channels) > 1 else channels[0]
    part, more_notes = _longest_useful(mono, rate_hz)
    short = short_notes(len(mono) / rate_hz, "3 to 15 s")
    return Reference(resample_soxr(part, rate_hz, RATE_HZ), notes + more_notes + short)


def _longest_useful(mono: Tensor, rate_hz: int) -> tuple[Tensor, tuple[str, ...]]:
    """All of `mono`, or the LONGEST_SECONDS of it that hold the most speech."""
    longest = LONGEST_SECONDS * rate_hz
    if len(mono) <= longest:
        return mono, ()
    block = round(BLOCK_SECONDS * rate_hz)
    loudness = mono[: len(mono) // block * block].reshape(-1, block).square().mean(dim=1).sqrt()
    speech = (loudness >= SPEECH_OF_PEAK * loudness.max()).double().cumsum(0)
    blocks = longest // block
    held = speech[blocks - 1 :] - torch.cat((speech.new_zeros(1), speech[:-blocks]))
    start = int(held.argmax()) * block
    note = (
        f"the reference is {len(mono) / rate_hz:.0f} s long; {LONGEST_SECONDS} s of it, from {start / rate_hz:.1f} s "
        "on, were used. A transcript must be of that part only"
    )
    return mono[start : start + longest].contiguous(), (note,)
