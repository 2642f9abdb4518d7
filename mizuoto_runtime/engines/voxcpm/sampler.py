"""From noise to a patch: Euler steps along the velocity of the local DiT, with guidance.

Arithmetic: flow matching (Lipman et al., https://arxiv.org/abs/2210.02747); CFG-Zero* (Fan et al.,
https://arxiv.org/abs/2503.18886), whose first steps stand still. Upstream: `UnifiedCFM` of voxcpm 2.0.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...lm.positions import Rope
from .network import LocalDit

STILL_SHARE = 0.04
SMALLEST_SQUARE = 1e-8


@dataclass(frozen=True)
class Schedule:
    """The steps that move. times, lengths: (steps) in the model's dtype, on its device."""

    times: Tensor
    lengths: Tensor


def schedule(timesteps: int, dtype: torch.dtype, device: torch.device) -> Schedule:
    """Of so many steps, each computed from the one before in the model's dtype, as upstream does."""
    span = torch.linspace(1, 0, timesteps + 1, device=device, dtype=dtype)
    span = span + (torch.cos(torch.pi / 2 * span) - 1 + span)
    still = max(1, int(len(span) * STILL_SHARE))
    time, length = span[0], span[0] - span[1]
    times, lengths = [], []
    for step in range(1, len(span)):
        if step > still:
            times.append(time)
            lengths.append(length)
        time = time - length
        if step < len(span) - 1:
            length = time - span[step + 1]
    empty = span[:0]
    return Schedule(torch.stack(times) if times else empty, torch.stack(lengths) if lengths else empty)


class PatchSampler:
    """Makes one patch after another with the same schedule."""

    def __init__(self, dit: LocalDit, plan: Schedule, cfg_value: float, rope: Rope, *, delta_time: bool) -> None:
        self._dit, self._cfg_value, self._rope = dit, cfg_value, rope
        self._lengths = plan.lengths.unbind()
        deltas = plan.lengths if delta_time else torch.zeros_like(plan.lengths)
        self._times = dit.times(plan.times, deltas).unbind() if self._lengths else ()

    def sample(self, noise: Tensor, condition: Tensor, before: Tensor, check: Callable[[], None]) -> Tensor:
        """noise, before: (patch, latent); condition: (1, condition's width) → the patch."""
        if not self._lengths:
            return noise
        begun = self._dit.begin(condition, before)
        x = noise
        for time, length in zip(self._times, self._lengths, strict=True):
            check()
            x = x - length * self._guided(self._dit(begun, x, time, self._rope))
        return x

    def _guided(self, velocities: Tensor) -> Tensor:
        """(2, patch, latent): with the condition, and without → (patch, latent)."""
        told, untold = velocities
        aligned = untold * (torch.sum(told * untold) / (torch.sum(untold**2) + SMALLEST_SQUARE))
        guided: Tensor = aligned + self._cfg_value * (told - aligned)
        return guided
