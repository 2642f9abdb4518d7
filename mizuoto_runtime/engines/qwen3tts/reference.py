"""A reference recording, of any rate and length → what the codec and the speaker encoder take."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from .resample import resample

RATE_HZ = 24_000
LONGEST_SECONDS = 60
SHORTEST_SECONDS = 0.1
SILENT_PEAK = 1e-3
LOWEST_RATE_HZ, HIGHEST_RATE_HZ = 1_000, 768_000
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
    if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
        raise InputError(f"the reference has {rate_hz:,} Hz; {LOWEST_RATE_HZ:,} to {HIGHEST_RATE_HZ:,} Hz are needed")
    if not 1 <= samples.ndim <= 3 or not samples.numel():
        raise InputError(f"the reference is {tuple(samples.shape)}; samples are needed, (channels, length)")
    batch = samples.detach().cpu().float()
    batch = batch.reshape((1, 1, -1) if batch.ndim == 1 else (-1, *batch.shape[-2:]))
    if not torch.isfinite(batch).all():
        raise InputError("the reference holds samples that aren't finite numbers; export it again")
    if batch.shape[2] < SHORTEST_SECONDS * rate_hz:
        seconds = batch.shape[2] / rate_hz
        raise InputError(f"the reference is {seconds:.2f} s long; {SHORTEST_SECONDS} s are the least, 3 to 15 are best")
    mono, notes = _chosen(batch)
    part, more_notes = _longest_useful(mono, rate_hz)
    return Reference(resample(part, rate_hz, RATE_HZ), notes + more_notes)


def _chosen(batch: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """The first recording that isn't silent, (length)."""
    for index, channels in enumerate(batch):
        mono = channels.mean(dim=0) if len(channels) > 1 else channels[0]
        if float(mono.abs().max()) >= SILENT_PEAK:
            note = f"the reference is a batch of {len(batch)}; number {index + 1} was used"
            return mono, (note,) if len(batch) > 1 else ()
    peak = float(batch.mean(dim=1).abs().max())
    raise InputError(
        f"the reference is silent: its peak is {peak:.1e} of full scale, {SILENT_PEAK:g} is the least; "
        "choose a recording in which somebody speaks"
    )


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
