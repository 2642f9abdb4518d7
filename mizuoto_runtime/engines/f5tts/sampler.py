"""A mel spectrogram from noise: the flow from time 0 to 1, with classifier-free guidance.

Arithmetic: flow matching (Lipman et al., https://arxiv.org/abs/2210.02747), classifier-free guidance (Ho, Salimans,
https://arxiv.org/abs/2207.12598), sway sampling (Chen et al., https://arxiv.org/abs/2410.06885, section 3.3).
Upstream: f5_tts/model/cfm.py of f5-tts 1.1.22, whose solvers are torchdiffeq's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn.utils.rnn import pad_sequence

from .network import Network

MAX_FRAMES = 65_536
UNGUIDED = 1e-5
GROUP = 64
"""Evaluations whose times are embedded at once, always the same ones together: so the results are the same too."""
PRUNED_OF_32 = {
    5: (0, 2, 4, 8, 16, 32),
    6: (0, 2, 4, 6, 8, 16, 32),
    7: (0, 2, 4, 6, 8, 16, 24, 32),
    10: (0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32),
    12: (0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32),
    16: (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32),
}
"""Numbers of steps whose times are not evenly spread, and these times, in parts of 32."""
Method = Literal["euler", "midpoint"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a flow is followed, under upstream's names. sway_sampling_coef: None for evenly spread times."""

    nfe_step: int = 32
    cfg_strength: float = 2.0
    sway_sampling_coef: float | None = -1.0
    ode_method: Method = "euler"

    @property
    def guided(self) -> bool:
        return self.cfg_strength >= UNGUIDED

    @property
    def evaluations(self) -> int:
        """How often the network runs."""
        return self.nfe_step * (2 if self.ode_method == "midpoint" else 1)


def step_times(how: Sampling, dtype: torch.dtype) -> Tensor:
    """(steps + 1) times from 0 to 1."""
    if how.nfe_step in PRUNED_OF_32:
        times = torch.tensor(PRUNED_OF_32[how.nfe_step], dtype=dtype) * (1 / 32)
    else:
        times = torch.linspace(0, 1, how.nfe_step + 1, dtype=dtype)
    if how.sway_sampling_coef is not None:
        times = times + how.sway_sampling_coef * (torch.cos(math.pi / 2 * times) - 1 + times)
    return times


@dataclass(frozen=True)
class Batch:
    """What is to be made, on the CPU.

    reference: (rows, frames, mel), padded with zeros. kept: bool (rows, frames), where the reference is kept. ids:
    int64 (rows, tokens), −1 after a row's end. frames: int64 (rows), each row's length.
    """

    reference: Tensor
    kept: Tensor
    ids: Tensor
    frames: Tensor


def batch_of(
    references: Sequence[Tensor], ids: Sequence[Sequence[int]], frames: Sequence[int], edited: Tensor | None = None
) -> Batch:
    """references: mel spectrograms, (frames, mel) each. frames: how long each row shall be, reference included; a row
    is always longer than its reference and its tokens. edited: bool (rows, frames), false where a reference isn't kept.
    """
    lengths = torch.tensor([len(reference) for reference in references])
    counts = torch.tensor([len(each) for each in ids])
    wanted = torch.maximum(torch.maximum(counts, lengths) + 1, torch.tensor(list(frames))).clamp(max=MAX_FRAMES)
    longest = int(wanted.max())
    reference = pad_sequence(list(references), batch_first=True)
    kept = torch.arange(reference.shape[1])[None] < lengths[:, None]
    if edited is not None:
        kept = kept & edited
    more = longest - reference.shape[1]
    return Batch(
        reference=torch.nn.functional.pad(reference, (0, 0, 0, more)),
        kept=torch.nn.functional.pad(kept, (0, more)),
        ids=pad_sequence([torch.tensor(each, dtype=torch.int64) for each in ids], batch_first=True, padding_value=-1),
        frames=wanted,
    )


def draw_noise(batch: Batch, dtype: torch.dtype, generators: Sequence[Generator]) -> Tensor:
    """(rows, frames, mel), one draw a row, each from its own generator or all from one; zeros after a row's end."""
    bands = batch.reference.shape[-1]
    rows = generators if len(generators) > 1 else [generators[0]] * len(batch.frames)
    drawn = [
        torch.randn(int(length), bands, generator=generator, dtype=dtype)
        for length, generator in zip(batch.frames, rows, strict=True)
    ]
    return pad_sequence(drawn, batch_first=True)


class Solver:
    """A batch on its way from noise to sound; `run` goes on from the last whole step.

    check: raises to cancel; called between layers. done: steps that are finished. x: (rows, frames, mel), where the
    flow is.
    """

    def __init__(
        self,
        network: Network,
        batch: Batch,
        how: Sampling,
        noise: Tensor,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.done = 0
        self.x = noise
        self._check = check
        self._network, self._batch, self._how = network, batch, how

    def run(self, device: torch.device | str, tell: Callable[[int], None] = lambda done: None) -> Tensor:
        """All steps that are left; returns the sound, (rows, frames, mel) in the model's dtype on the CPU.

        tell: called before each step with the number of those that are done.
        """
        batch, how = self._batch, self._how
        dtype = self._network.dtype
        reference = batch.reference.to(device, dtype)
        kept = batch.kept[..., None].to(device)
        given = torch.where(kept, reference, torch.zeros_like(reference))
        conditions = self._network.conditions(
            given, batch.ids.to(device), batch.frames, guided=how.guided, check=self._check
        )
        times = step_times(how, dtype).to(device)
        self.x = self.x.to(device)
        stages = how.evaluations // how.nfe_step
        group = GROUP // stages
        for first in range(self.done - self.done % group, how.nfe_step, group):
            last = min(first + group, how.nfe_step)
            timed = self._network.timed(self._evaluated(times[first : last + 1]))
            for step in range(max(first, self.done), last):
                tell(step)
                own = timed[(step - first) * stages : (step - first + 1) * stages]
                self.x = self._step(conditions, times[step + 1] - times[step], own)
                self.done = step + 1
        return torch.where(kept, reference, self.x).cpu()

    def _evaluated(self, times: Tensor) -> Tensor:
        """The times at which the network runs between those."""
        if self._how.ode_method == "euler":
            return times[:-1]
        return torch.stack((times[:-1], times[:-1] + 0.5 * (times[1:] - times[:-1])), dim=1).flatten()

    def _step(self, conditions: object, width: Tensor, timed: Sequence[object]) -> Tensor:
        velocity = self._velocity(self.x, conditions, timed[0])
        if self._how.ode_method == "midpoint":
            velocity = self._velocity(self.x + velocity * (0.5 * width), conditions, timed[1])
        return self.x + width * velocity

    def _velocity(self, x: Tensor, conditions: object, timed: object) -> Tensor:
        velocities: Tensor = self._network(x, conditions, timed, self._check)
        if not self._how.guided:
            return velocities
        conditioned, free = velocities.chunk(2)
        return conditioned + (conditioned - free) * self._how.cfg_strength
