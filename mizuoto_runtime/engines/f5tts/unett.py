"""E2-TTS's transformer: the time is a position before the sound, and the later half sees the earlier one's inputs.

Arithmetic: E2 TTS (Eskimez et al., https://arxiv.org/abs/2406.18009, section 2). Upstream:
f5_tts/model/backbones/unett.py of f5-tts 1.1.22.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...nn.linear import Linear
from .config import Architecture
from .layers import Attention, Mlp, RmsNorm
from .network import Conditions, Network


class Block(nn.Module):
    """joins: whether a product joins the block's input with that of the block that it answers to."""

    def __init__(self, architecture: Architecture, *, joins: bool) -> None:
        super().__init__()
        self.skip = Linear(2 * architecture.dim, architecture.dim, bias=False) if joins else None
        self.attention_norm = RmsNorm(architecture.dim)
        self.attention = Attention(architecture)
        self.mlp_norm = RmsNorm(architecture.dim)
        self.mlp = Mlp(architecture)

    def forward(self, x: Tensor, earlier: Tensor | None, rotary: Tensor, mask: Tensor | None) -> Tensor:
        """x, earlier: (rows, length, width)."""
        if earlier is not None:
            x = x + earlier if self.skip is None else self.skip(torch.cat((x, earlier), dim=-1))
        x = self.attention(self.attention_norm(x), rotary, mask).add_(x)
        y: Tensor = self.mlp(self.mlp_norm(x)).add_(x)
        return y


class UnetT(Network):
    def __init__(self, architecture: Architecture, tokens: int) -> None:
        super().__init__(architecture, tokens)
        half = architecture.depth // 2
        joins = architecture.skip_connect_type == "concat"
        self.blocks = nn.ModuleList(
            Block(architecture, joins=joins and index >= half) for index in range(architecture.depth)
        )
        self.output_norm = RmsNorm(architecture.dim)

    def each_step(self) -> list[nn.Module]:
        return [*super().each_step(), *self.blocks, self.output]

    @property
    def places_before(self) -> int:
        """The time's."""
        return 1

    def timed(self, times: Tensor) -> Sequence[Tensor]:
        """Each time's embedding, (width)."""
        return list(self.time(times))

    def forward(self, x: Tensor, conditions: Conditions, timed: object, check: Callable[[], None]) -> Tensor:
        assert isinstance(timed, Tensor)
        y: Tensor = self.input(x, conditions)
        y = torch.cat((timed.expand(len(y), 1, -1), y), dim=1)
        mask = None if conditions.mask is None else functional.pad(conditions.mask, (1, 0), value=True)
        skips: list[Tensor] = []
        half, skipping = len(self.blocks) // 2, self.architecture.skip_connect_type != "none"
        for index, block in enumerate(self.blocks):
            check()
            if index < half:
                skips.append(y)
            earlier = skips.pop() if index >= half else None
            y = block(y, earlier if skipping else None, conditions.rotary, mask)
        velocities: Tensor = self.output(self.output_norm(y)[:, 1:])
        return velocities
