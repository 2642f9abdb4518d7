"""F5-TTS's transformer: blocks whose norms and residuals depend on the time.

How they depend on it is the same for all positions and both halves of guidance, and known before the first step: so it
is computed for many steps at once, and the larger part of a block's weights is read once for all of them.

Arithmetic: DiT with adaptive layer norms (Peebles, Xie, https://arxiv.org/abs/2212.09748, section 3.2), F5-TTS (Chen et
al., https://arxiv.org/abs/2410.06885). Upstream: f5_tts/model/backbones/dit.py of f5-tts 1.1.22.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...nn.linear import Linear
from .config import Architecture
from .layers import NORM_EPSILON, Attention, Mlp
from .network import Conditions, Network


class Block(nn.Module):
    """Attention and an MLP, each between a norm that depends on the time and a gate that does."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.attention = Attention(architecture)
        self.mlp = Mlp(architecture)

    def forward(self, x: Tensor, modulation: Tensor, rotary: Tensor, mask: Tensor | None) -> Tensor:
        """x: (rows, length, width), which is changed. modulation: (6 · width)."""
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation.chunk(6)
        x.addcmul_(self.attention(modulated(x, shift, scale), rotary, mask), gate)
        return x.addcmul_(self.mlp(modulated(x, mlp_shift, mlp_scale)), mlp_gate)


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """x normalised, scaled by 1 + scale, and shifted; both (width)."""
    return functional.layer_norm(x, (x.shape[-1],), 1 + scale, shift, NORM_EPSILON)


class Dit(Network):
    def __init__(self, architecture: Architecture, tokens: int) -> None:
        super().__init__(architecture, tokens)
        width, depth = architecture.dim, architecture.depth
        self.modulations = nn.ModuleList(Linear(width, 6 * width) for _ in range(depth))
        self.output_modulation = Linear(width, 2 * width)
        self.blocks = nn.ModuleList(Block(architecture) for _ in range(depth))
        self.long_skip = Linear(2 * width, width, bias=False) if architecture.long_skip_connection else None

    def once(self) -> list[nn.Module]:
        return [*super().once(), *self.modulations, self.output_modulation]

    def each_step(self) -> list[nn.Module]:
        last = [self.output] if self.long_skip is None else [self.long_skip, self.output]
        return [*super().each_step(), *self.blocks, *last]

    def timed(self, times: Tensor) -> Sequence[tuple[Tensor, ...]]:
        """Of each time, the modulation of every block and of the output."""
        conditions = functional.silu(self.time(times))
        modulations = [linear(conditions) for linear in (*self.modulations, self.output_modulation)]
        return [tuple(each[step] for each in modulations) for step in range(len(times))]

    def forward(self, x: Tensor, conditions: Conditions, timed: object, check: Callable[[], None]) -> Tensor:
        assert isinstance(timed, tuple)
        *modulations, last = timed
        y: Tensor = self.input(x, conditions)
        first = y.clone() if self.long_skip is not None else None
        for block, modulation in zip(self.blocks, modulations, strict=True):
            check()
            y = block(y, modulation, conditions.rotary, conditions.mask)
        if self.long_skip is not None and first is not None:
            y = self.long_skip(torch.cat((y, first), dim=-1))
        scale, shift = last.chunk(2)
        velocities: Tensor = self.output(modulated(y, shift, scale))
        return velocities
