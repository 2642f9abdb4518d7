"""What the codec's two halves share: layers without initial values, Snake, and residual units.

Arithmetic: DAC (Kumar et al., https://arxiv.org/abs/2306.06546, section 3). Upstream: `models/dac` of transformers
5.24.0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

KERNEL = 7
DILATIONS = (1, 3, 9)
SNAKE_EPSILON = 1e-9


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

    def forward(self, x: Tensor) -> Tensor:
        """x: (1, channels, length)."""
        waves = (self.alpha * x).sin_().square_()
        return waves.mul_((self.alpha + SNAKE_EPSILON).reciprocal()).add_(x)


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
        z: Tensor = self.pointwise(self.pointwise_activation(y)).add_(x)
        return z
