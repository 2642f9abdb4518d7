"""What the codec's two halves share: layers without initial values, Snake, and residual units.

Arithmetic: DAC (Kumar et al., https://arxiv.org/abs/2306.06546, section 3). Upstream: `models/dac` of transformers
5.24.0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

KERNEL = 7
DILATIONS = (1, 3, 9)
UNITS_REACH = KERNEL // 2 * sum(DILATIONS)
"""How far to each side the residual units of a stage look."""
SNAKE_EPSILON = 1e-9
TILE_ELEMENTS = 12 << 20
"""Of a tensor in a tile: 15 s of sound in the decoder's last stage, 8 s in the encoder's first."""
BLOCK_ELEMENTS = 1 << 19
"""So many are activated at once on a CPU, since they stay in its cache between the steps."""


def nothing() -> None:
    """The check of a request that can't be cancelled."""


class Conv(nn.Conv1d):
    """A convolution over (1, channels, length)."""

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""


class Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""


class Snake(nn.Module):
    """x + sin²(αx) / α, with α by channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(1, channels, 1))

    def forward(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x: (1, channels, length). out: where the result goes; it may be `x` itself."""
        y = torch.empty_like(x) if out is None else out
        scale = (self.alpha + SNAKE_EPSILON).reciprocal()
        channels, length = x.shape[1:]
        block = max(1, BLOCK_ELEMENTS // max(1, length)) if x.device.type == "cpu" else channels
        for start in range(0, channels, block):
            part = slice(start, start + block)
            waves = (self.alpha[:, part] * x[:, part]).sin_().square_().mul_(scale[:, part])
            torch.add(x[:, part], waves, out=y[:, part])
        return y


class ResidualUnit(nn.Module):
    """A dilated and a pointwise convolution, each activated before, added to their input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.dilated_activation = Snake(channels)
        self.dilated = Conv(channels, channels, KERNEL, dilation=dilation, padding=KERNEL // 2 * dilation)
        self.pointwise_activation = Snake(channels)
        self.pointwise = Conv(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dilated(self.dilated_activation(x))
        z: Tensor = self.pointwise(self.pointwise_activation(y, out=y)).add_(x)
        return z
