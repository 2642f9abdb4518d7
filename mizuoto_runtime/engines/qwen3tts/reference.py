"""A recording, made ready for the encoders: one channel, of a useful length, not silent."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import InputError
from ...types import Audio

MOST_SECONDS = 24.0
LEAST_SECONDS = 0.2
SILENCE = 1e-3
"""The largest sample of what counts as silence."""
STEP_SECONDS = 0.02
SEARCHED_SECONDS = 3.0


def useful_part(reference: Audio) -> tuple[Tensor, str]:
    """(length) samples at the recording's own rate, its channels mixed, and what is to be said of it, or "".

    A recording of up to MOST_SECONDS is taken whole; of a longer one, so much from where its sound begins, up to the
    quietest place of the last seconds. InputError if it is silent, too short, or holds what isn't a number.
    """
    samples = reference.samples.float().mean(dim=0)
    rate_hz = reference.rate_hz
    if not bool(samples.isfinite().all()):
        raise InputError("the reference has samples that aren't finite numbers; make it again")
    if samples.numel() < LEAST_SECONDS * rate_hz:
        seconds = samples.numel() / rate_hz
        raise InputError(f"the reference is {seconds:.2f} seconds long; {LEAST_SECONDS} are the least, 3 are good")
    loud = (samples.abs() > SILENCE).nonzero()
    if not len(loud):
        peak = float(samples.abs().max())
        raise InputError(f"the reference is silent: its largest sample is {peak:.6f}; choose one in which someone speaks")
    most = round(MOST_SECONDS * rate_hz)
    if len(samples) <= most:
        return samples, ""
    start = min(int(loud[0]), len(samples) - most)
    end = start + _quietest(samples[start : start + most], rate_hz)
    note = (
        f"the reference is {len(samples) / rate_hz:.1f} seconds long; {start / rate_hz:.1f} to {end / rate_hz:.1f} were "
        "taken, so its text must be of that part only"
    )
    return samples[start:end].clone(), note


def _quietest(samples: Tensor, rate_hz: int) -> int:
    """Where to end: the middle of the quietest step among the last seconds."""
    step = max(1, round(STEP_SECONDS * rate_hz))
    first = len(samples) - round(SEARCHED_SECONDS * rate_hz)
    steps = samples[first:].unfold(0, step, step)
    return first + int(torch.argmin(steps.square().mean(dim=1))) * step + step // 2
