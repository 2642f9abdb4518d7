"""How long each symbol lasts: the duration predictors of VITS.

Arithmetic: VITS, section 2.2.2 and appendix B; monotonic rational-quadratic splines after Durkan et al., Neural Spline
Flows (https://arxiv.org/abs/1906.04032), section 3.1, inverse in appendix A.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .architecture import PlainDurationConfig, StochasticDurationConfig
from .layers import ChannelNorm, Conv

SPLINE_BOUND = 5.0
MIN_BIN = 1e-3
MIN_SLOPE = 1e-3
EDGE = 1e-6


class SeparableLayer(nn.Module):
    """A dilated depthwise and a pointwise convolution, each normalised, added to their input."""

    def __init__(self, channels: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.depthwise = Conv(channels, channels, kernel_size, groups=channels, dilation=dilation)
        self.depthwise_norm = ChannelNorm(channels)
        self.pointwise = Conv(channels, channels)
        self.pointwise_norm = ChannelNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.gelu(self.depthwise_norm(self.depthwise(x)))
        return x + functional.gelu(self.pointwise_norm(self.pointwise(y)))


def _stack(config: StochasticDurationConfig) -> nn.Sequential:
    return nn.Sequential(
        *(SeparableLayer(config.channels, config.kernel_size, dilation) for dilation in config.dilations)
    )


class SplineCoupling(nn.Module):
    """The inverse of a coupling: the first of two channels decides the spline that the second goes through."""

    def __init__(self, config: StochasticDurationConfig) -> None:
        super().__init__()
        self.bins = config.bins
        self.scale = math.sqrt(config.channels)
        self.input = Conv(1, config.channels)
        self.stack = _stack(config)
        self.output = Conv(config.channels, 3 * config.bins - 1)

    def forward(self, z: Tensor, hidden: Tensor) -> Tensor:
        """z: (1, 2, 1, length). hidden: (1, channels, 1, length)."""
        fixed, moved = z[:, :1], z[0, 1, 0]
        shape = self.output(self.stack(self.input(fixed) + hidden))[0, :, 0].T
        widths, heights, slopes = shape.split([self.bins, self.bins, self.bins - 1], dim=1)
        moved = invert_spline(moved, widths / self.scale, heights / self.scale, slopes)
        return torch.cat([fixed, moved[None, None, None]], dim=1)


class StochasticDurations(nn.Module):
    """Durations drawn from noise by an inverted flow that the text steers."""

    needs_noise = True

    def __init__(self, text_channels: int, speaker_channels: int, config: StochasticDurationConfig) -> None:
        super().__init__()
        self.input = Conv(text_channels, config.channels)
        self.stack = _stack(config)
        self.output = Conv(config.channels, config.channels)
        self.speaker = Conv(speaker_channels, config.channels) if speaker_channels else None
        self.couplings = nn.ModuleList(SplineCoupling(config) for _ in range(config.flows))
        self.mean = nn.Parameter(torch.empty(2, 1))
        self.inverse_scale = nn.Parameter(torch.empty(2, 1))

    def forward(self, hidden: Tensor, noise: Tensor, speaker: Tensor | None) -> Tensor:
        """Log durations (length).

        hidden: (1, text channels, 1, length). noise: (1, 2, length), scaled. speaker: (1, speaker channels, 1, 1).
        """
        hidden = self.input(hidden)
        if self.speaker is not None:
            hidden = hidden + self.speaker(speaker)
        hidden = self.output(self.stack(hidden))
        z = noise.unsqueeze(2)
        for coupling in self.couplings:
            z = coupling(z.flip(1), hidden)
        z = (z[0, :, 0].flip(0) - self.mean) * self.inverse_scale
        return z[0]


class PlainDurations(nn.Module):
    """Durations without noise, from two convolutions."""

    needs_noise = False

    def __init__(self, text_channels: int, speaker_channels: int, config: PlainDurationConfig) -> None:
        super().__init__()
        self.first = Conv(text_channels, config.channels, config.kernel_size)
        self.first_norm = ChannelNorm(config.channels)
        self.second = Conv(config.channels, config.channels, config.kernel_size)
        self.second_norm = ChannelNorm(config.channels)
        self.output = Conv(config.channels, 1)
        self.speaker = Conv(speaker_channels, text_channels) if speaker_channels else None

    def forward(self, hidden: Tensor, noise: Tensor, speaker: Tensor | None) -> Tensor:
        """As `StochasticDurations`, but `noise` is not read."""
        if self.speaker is not None:
            hidden = hidden + self.speaker(speaker)
        hidden = self.first_norm(functional.relu_(self.first(hidden)))
        hidden = self.second_norm(functional.relu_(self.second(hidden)))
        durations: Tensor = self.output(hidden)[0, 0, 0]
        return durations


def invert_spline(y: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor) -> Tensor:
    """Where each monotonic rational-quadratic spline takes the value `y`; outside ±5 it is the identity.

    y: (length). widths, heights: (length, bins), before softmax. slopes: (length, bins − 1), before softplus.
    """
    edges_x, widths = _edges(widths)
    edges_y, heights = _edges(heights)
    outer = math.log(math.exp(1 - MIN_SLOPE) - 1)
    slopes = MIN_SLOPE + functional.softplus(functional.pad(slopes, (1, 1), value=outer))
    inside = (y >= -SPLINE_BOUND) & (y <= SPLINE_BOUND)
    within = y.clamp(-SPLINE_BOUND, SPLINE_BOUND)[:, None]
    upper = torch.cat([edges_y[:, :-1], edges_y[:, -1:] + EDGE], dim=1)
    index = ((within >= upper).sum(dim=1, keepdim=True) - 1).clamp_(min=0)  # -1 only where y is no number

    def chosen(values: Tensor) -> Tensor:
        return values.gather(1, index)

    width, height, rise = chosen(widths), chosen(heights), within - chosen(edges_y)
    steepness, slope, next_slope = height / width, chosen(slopes[:, :-1]), chosen(slopes[:, 1:])
    bend = slope + next_slope - 2 * steepness
    a = rise * bend + height * (steepness - slope)
    b = height * slope - rise * bend
    c = -steepness * rise
    root = 2 * c / (-b - torch.sqrt(b * b - 4 * a * c))
    return torch.where(inside, (root * width + chosen(edges_x))[:, 0], y)


def _edges(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Bin edges (length, bins + 1) from −5 to 5, and bin sizes (length, bins), from `raw` sizes before softmax."""
    bins = raw.shape[1]
    sizes = MIN_BIN + (1 - MIN_BIN * bins) * torch.softmax(raw, dim=1)
    edges = 2 * SPLINE_BOUND * functional.pad(sizes.cumsum(1), (1, 0)) - SPLINE_BOUND
    edges[:, 0] = -SPLINE_BOUND
    edges[:, -1] = SPLINE_BOUND
    return edges, edges.diff(dim=1)
