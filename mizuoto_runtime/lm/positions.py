"""What a transformer's layers know of positions: how far each is turned, and which others it sees.

Arithmetic: rotary position embedding over halves (Su et al., https://arxiv.org/abs/2104.09864), angles in float32, then
cast; factors of rotary frequencies (LongRoPE, Ding et al., https://arxiv.org/abs/2402.13753).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .decoder import DecoderConfig


class Rope:
    """The rotation of some positions.

    cos, sin: (rows or 1, positions, 1, head_dim), in the dtype to compute in; the first half of the sines is negative.
    """

    __slots__ = ("cos", "half", "sin")

    def __init__(self, cos: Tensor, sin: Tensor) -> None:
        self.cos = cos
        self.sin = sin
        self.half = cos.shape[-1] // 2

    def of(self, kept: slice) -> Rope:
        """Of some of these positions."""
        return Rope(self.cos[:, kept], self.sin[:, kept])

    def turn(self, x: Tensor) -> Tensor:
        """x: (rows, positions, heads, head_dim); the result is in its dtype."""
        wide = x.to(self.cos.dtype)
        return (wide * self.cos).addcmul_(wide.roll(self.half, -1), self.sin).to(x.dtype)


class RopeTable:
    """Rotations by position, computed once for every 256 positions that are asked for.

    dtype: what they are rounded to. wide: whether they are float32 nevertheless, so that products are.
    """

    STEP_POSITIONS = 256

    def __init__(
        self, config: DecoderConfig, dtype: torch.dtype, device: torch.device, *, wide: bool = False
    ) -> None:
        half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
        self._frequencies = (1.0 / (config.rope_theta**half)).to(device)
        factors = torch.tensor(config.rope_factors, dtype=torch.float32, device=device)
        self._narrow = 1.0 / factors if config.rope_factors else None
        self._scale = config.rope_scale
        self._dtype = dtype
        self._held = torch.float32 if wide else dtype
        self._cos = self._sin = torch.empty(0, config.head_dim, dtype=self._held, device=device)

    def span(self, start: int, end: int) -> Rope:
        """Of the positions from `start` up to `end`, the same ones in every row."""
        self._reach(end)
        return Rope(self._cos[None, start:end, None], self._sin[None, start:end, None])

    def at(self, positions: Tensor, end: int) -> Rope:
        """Of `positions`, (rows, new) whole numbers below `end`."""
        self._reach(end)
        return Rope(self._cos[positions][:, :, None], self._sin[positions][:, :, None])

    def _reach(self, end: int) -> None:
        if end <= len(self._cos):
            return
        room = -(-end // self.STEP_POSITIONS) * self.STEP_POSITIONS
        positions = torch.arange(room, device=self._frequencies.device).float()
        if self._narrow is None:
            angles = torch.outer(positions, self._frequencies)
        else:
            angles = torch.outer(positions, self._narrow) * self._frequencies
        sines = angles.sin() * self._scale
        self._cos = (angles.cos() * self._scale).repeat(1, 2).to(self._dtype).to(self._held)
        self._sin = torch.cat((-sines, sines), dim=1).to(self._dtype).to(self._held)


@dataclass
class Masks:
    """What each of the `new` last of `held` positions may see; None where that is plainly all before it.

    hidden: (rows) how many positions at the beginning of each row are padding; None if there is no padding.
    """

    new: int
    held: int
    device: torch.device
    hidden: Tensor | None = None
    _made: dict[int, Tensor | None] = field(default_factory=dict)

    def of(self, window: int) -> Tensor | None:
        """(rows or 1, 1, new, held) booleans for layers that see `window` positions, 0: all."""
        if window not in self._made:
            self._made[window] = self._make(window)
        return self._made[window]

    def _make(self, window: int) -> Tensor | None:
        windowed = 0 < window < self.held
        causal = self.new > 1 and self.new < self.held
        if self.hidden is None and not windowed and not causal:
            return None
        keys = torch.arange(self.held, device=self.device)
        queries = keys[self.held - self.new :, None]
        seen = keys <= queries
        if windowed:
            seen &= keys > queries - window
        seen = seen[None]
        if self.hidden is not None:
            seen = (seen & (keys >= self.hidden[:, None, None])) | (keys == queries)
        return seen[:, None]
