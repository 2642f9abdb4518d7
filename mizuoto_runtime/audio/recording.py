"""Recordings as they come from outside, refused with a reason if they are no sound."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from .wav import HIGHEST_RATE_HZ, LOWEST_RATE_HZ

SILENT_PEAK = 1e-3
SHORT_SECONDS = 1.0
LOUDEST_PEAK = 100.0
"""Above it samples are no sound of full scale 1, but whole numbers that nobody scaled, or damaged."""


def recording_batch(samples: Tensor, rate_hz: int, name: str = "reference") -> Tensor:
    """samples: (length), (channels, length) or (batch, channels, length) → float32 (batch, channels, length), CPU.

    name: what the recording is called in messages. Whole numbers aren't rescaled. InputError if it is none of these,
    empty, not finite, far above full scale, or its rate is no sound's.
    """
    if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
        raise InputError(f"the {name} has {rate_hz:,} Hz; {LOWEST_RATE_HZ:,} to {HIGHEST_RATE_HZ:,} Hz are needed")
    if not 1 <= samples.ndim <= 3 or not samples.numel():
        raise InputError(f"the {name} is {tuple(samples.shape)}; samples are needed, (channels, length)")
    batch = samples.detach().cpu().float()
    batch = batch.reshape((1, 1, -1) if batch.ndim == 1 else (-1, *batch.shape[-2:]))
    if not torch.isfinite(batch).all():
        raise InputError(f"the {name} holds samples that aren't finite numbers; export it again")
    peak = float(batch.abs().max())
    if peak > LOUDEST_PEAK:
        raise InputError(
            f"the {name}'s peak is {peak:,.6g} times full scale; samples from -1 to 1 are needed. Divide whole "
            "numbers by their largest value, 32,768 if they have 16 bits"
        )
    return batch


def first_audible(batch: Tensor, name: str = "reference") -> tuple[Tensor, tuple[str, ...]]:
    """Of a batch (batch, channels, length) the first recording that isn't silent, and a note if there are several.

    A recording is silent if the mean of its channels nowhere reaches SILENT_PEAK. InputError if all are.
    """
    for index, channels in enumerate(batch):
        if float(channels.mean(dim=0).abs().max()) >= SILENT_PEAK:
            note = f"the {name} is a batch of {len(batch)}; number {index + 1} was used"
            return channels, (note,) if len(batch) > 1 else ()
    peak = float(batch.mean(dim=1).abs().max())
    raise InputError(
        f"the {name} is silent: its peak is {peak:.1e} of full scale, {SILENT_PEAK:g} is the least; "
        "choose a recording in which somebody speaks"
    )


def short_notes(seconds: float, best: str, name: str = "reference") -> tuple[str, ...]:
    """A note if so many seconds of sound are too few for a voice. best: how many are, such as "3 to 12 s"."""
    if round(seconds, 2) >= SHORT_SECONDS:
        return ()
    return (f"the {name} has {seconds:.2f} s of sound; {best} are best",)
