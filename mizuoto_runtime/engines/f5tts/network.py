"""What the two transformers have in common: their input, and what of it stays the same from step to step.

Both halves of guidance, conditioned and not, are one batch. Their inputs share the noised sound, and the first layers
of the input are linear in it: so it is projected and convolved once, and what text and reference add was computed
before the first step.

Arithmetic: `InputEmbedding` of f5_tts/model/backbones/dit.py, f5-tts 1.1.22.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...nn.linear import Linear
from .config import Architecture
from .layers import Position, Projection, Times, masked, rotary_table
from .text_encoder import TextEncoder


@dataclass(frozen=True)
class Conditions:
    """What every step of a sampling shares; rows are doubled if it is guided.

    projected, convolved: (rows, width, frames), what reference and text add to the input and to its first convolution.
    rotary: see `rotary_table`. mask: (rows, frames), where there is sound; None for a single row. input_mask: the same,
    None if the input doesn't heed it.
    """

    projected: Tensor
    convolved: Tensor
    rotary: Tensor
    mask: Tensor | None
    input_mask: Tensor | None


class Input(nn.Module):
    """The noised sound, the reference's and the text's embedding → (rows, frames, width)."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.projection = Projection(2 * architecture.mel_dim + architecture.text_dim, architecture.dim)
        self.position = Position(architecture.dim)

    def constant(self, reference: Tensor, text: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """reference: (rows, frames, mel); text: (rows or 2 · rows, frames, width), the second half without reference.

        Returns what both add, projected and convolved.
        """
        bands = reference.shape[-1]
        projected = self.projection(text.transpose(1, 2), 2 * bands, bias=True)
        projected[: len(reference)] += self.projection(reference.transpose(1, 2), bands)
        return projected, self.position.first(masked(projected, mask))

    def forward(self, x: Tensor, conditions: Conditions) -> Tensor:
        """x: (rows, frames, mel); given once for both halves."""
        mask = conditions.input_mask
        sound = self.projection(x.transpose(1, 2), 0)
        convolved = self.position.first(masked(sound, None if mask is None else mask[: len(x)]), bias=False)
        y = functional.mish(masked(_both(convolved, conditions.convolved), mask))
        y = functional.mish(masked(self.position.second(y), mask))
        return (y + _both(sound, conditions.projected)).transpose(1, 2).contiguous()


def _both(x: Tensor, constant: Tensor) -> Tensor:
    """x: (rows, …), added to each half of `constant`, (rows or 2 · rows, …)."""
    return (constant.view(-1, *x.shape) + x).flatten(0, 1)


class Network(nn.Module):
    """A flow's velocity, from a noised mel spectrogram, a reference, a text and a time.

    Units stream in the order in which they run: what runs once for all steps first.
    """

    blocks: nn.ModuleList

    def __init__(self, architecture: Architecture, tokens: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.frequencies: Tensor
        self.register_buffer("frequencies", torch.empty(architecture.dim_head // 2))
        self.text = TextEncoder(architecture, tokens)
        self.time = Times(architecture.dim)
        self.input = Input(architecture)
        self.output = Linear(architecture.dim, architecture.mel_dim)

    @property
    def dtype(self) -> torch.dtype:
        return self.output.weight.dtype

    def once(self) -> list[nn.Module]:
        """The units that run once for many steps."""
        return [*self.text.blocks, self.time]

    def each_step(self) -> list[nn.Module]:
        """The units that run in every step."""
        return [self.input.projection, self.input.position.first, self.input.position.second]

    def memory_units(self) -> list[nn.Module]:
        """What streams together, in running order."""
        return [*self.once(), *self.each_step()]

    def conditions(
        self, reference: Tensor, ids: Tensor, frames: Tensor, *, guided: bool, check: Callable[[], None]
    ) -> Conditions:
        """reference: (rows, frames, mel), 0 where sound is to be made. ids, frames, check: see `TextEncoder`."""
        text = self.text(ids, frames, check, guided=guided)
        mask = self._mask(reference.shape[1], frames.to(reference.device), guided) if len(frames) > 1 else None
        input_mask = mask if self.architecture.backbone == "DiT" else None
        projected, convolved = self.input.constant(reference, text, input_mask)
        rotary = rotary_table(self.frequencies, reference.shape[1] + self.places_before)
        return Conditions(projected, convolved, rotary, mask, input_mask)

    @property
    def places_before(self) -> int:
        """Positions before the sound's first."""
        return 0

    @staticmethod
    def _mask(length: int, frames: Tensor, guided: bool) -> Tensor:
        mask = torch.arange(length, device=frames.device)[None] < frames[:, None]
        return torch.cat((mask, mask)) if guided else mask

    def timed(self, times: Tensor) -> Sequence[object]:
        """What each of `times`, (count), changes in the blocks, for `forward`."""
        raise NotImplementedError

    def forward(self, x: Tensor, conditions: Conditions, timed: object, check: Callable[[], None]) -> Tensor:
        """x: (rows, frames, mel) → velocities, (rows or 2 · rows, frames, mel). timed: one of what `timed` gives.

        check: raises to cancel; called between layers.
        """
        raise NotImplementedError
