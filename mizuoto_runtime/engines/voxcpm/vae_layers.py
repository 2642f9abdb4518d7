"""What the VAE's two halves share: causal convolutions over rows, (length, channels), and residual units.

Everything is causal, so a long input is computed from left to right in tiles that fit a processor's cache; what a tile
needs of those before it is carried on. Where tiles end changes nothing but the last bits.

The weights are folded when they are loaded. With z = αx, upstream's snake x + sin²(αx) / α is (z + sin² z) / α; here it
gives z + sin² z, and what reads it is divided by α. A bias in front of snakes is added by them.

Arithmetic: snake (Ziyin et al., https://arxiv.org/abs/2006.08195), DAC's residual units (Kumar et al.,
https://arxiv.org/abs/2306.06546), causal and, as a rule, depthwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

KERNEL = 7
DILATIONS = (1, 3, 9)
TILE_ELEMENTS = 1 << 17
ACCELERATOR_TILE_ELEMENTS = 1 << 22
PART_WEIGHTS = 1 << 22
"""Weights of a matrix that move at once at most; a larger one moves in parts."""
Check = Callable[[], None]
Past = dict[nn.Module, Tensor]
"""What a layer needs of the tiles before: the last of its input's rows."""


def nothing() -> None:
    """The check of a request that can't be cancelled."""


def empty(*shape: int) -> nn.Parameter:
    """A weight without initial values: weights are always loaded."""
    return nn.Parameter(torch.empty(shape))


def tile_elements(device: torch.device) -> int:
    """Values that are computed at once."""
    return TILE_ELEMENTS if device.type == "cpu" else ACCELERATOR_TILE_ELEMENTS


def tiles(length: int, tile_length: int) -> Iterator[tuple[int, int]]:
    """Where each tile begins and ends."""
    tile_length = max(1, tile_length)
    return ((start, min(length, start + tile_length)) for start in range(0, length, tile_length))


def room(layer: nn.Module, reach: int, x: Tensor, past: Past) -> Tensor:
    """Uninitialised rows for an input as long as `x`, after the `reach` that are carried on; zeros at the beginning."""
    padded = x.new_empty(reach + len(x), x.shape[1])
    before = past.get(layer)
    if before is None:
        padded[:reach].zero_()
    else:
        padded[:reach] = before
    return padded


def keep(layer: nn.Module, reach: int, padded: Tensor, past: Past) -> None:
    """Carry the last `reach` rows on."""
    past[layer] = padded[len(padded) - reach :].clone()


class Snake(nn.Module):
    """z + sin² z, with z = scale · x + shift by channel."""

    STREAMABLE = True

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = empty(channels)
        self.shift = empty(channels)

    def forward(self, x: Tensor, out: Tensor) -> Tensor:
        """x: (length, channels). out: where the result goes; it may be `x` itself."""
        for start, end in tiles(len(x), tile_elements(x.device) // x.shape[1]):
            add_waves(torch.addcmul(self.shift, x[start:end], self.scale, out=out[start:end]))
        return out


def add_waves(z: Tensor) -> Tensor:
    """z + sin² z, in place."""
    waves = z.sin()
    return z.addcmul_(waves, waves)


class Depthwise(nn.Module):
    """A dilated convolution, each channel on its own. reach: rows before the first that it needs."""

    STREAMABLE = True

    def __init__(self, channels: int, dilation: int = 1) -> None:
        super().__init__()
        self.taps = empty(KERNEL, channels)
        self.bias = empty(channels)
        self.dilation, self.reach = dilation, (KERNEL - 1) * dilation

    def forward(self, padded: Tensor) -> Tensor:
        """padded: (reach + length, channels) → (length, channels)."""
        length = len(padded) - self.reach
        y = torch.addcmul(self.bias, padded[:length], self.taps[0])
        for tap in range(1, KERNEL):
            start = tap * self.dilation
            y.addcmul_(padded[start : start + length], self.taps[tap])
        return y


class Dense(nn.Module):
    """A dilated convolution of all channels with all. reach: rows before the first that it needs."""

    STREAMABLE = True

    def __init__(self, inputs: int, outputs: int, dilation: int = 1) -> None:
        super().__init__()
        self.taps = empty(KERNEL, inputs, outputs)
        self.bias = empty(outputs)
        self.dilation, self.reach = dilation, (KERNEL - 1) * dilation

    def forward(self, padded: Tensor) -> Tensor:
        """padded: (reach + length, inputs) → (length, outputs)."""
        length = len(padded) - self.reach
        y = torch.addmm(self.bias, padded[:length], self.taps[0])
        for tap in range(1, KERNEL):
            start = tap * self.dilation
            y.addmm_(padded[start : start + length], self.taps[tap])
        return y


class Matrix(nn.Linear):
    """Some of the outputs of a product without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, x: Tensor, out: Tensor, total: bool = False) -> None:  # type: ignore[override]
        """x: (length, inputs). out: (length, outputs), written; total: added to."""
        torch.addmm(out, x, self.weight.T, beta=1 if total else 0, out=out)


class Windows(nn.Module):
    """A product with windows of `rows` rows, each `stride` rows after the one before.

    bounds: where the outputs of each part of a large matrix begin and end, multiples of `grain`.
    """

    def __init__(self, inputs: int, outputs: int, rows: int, stride: int, grain: int = 1) -> None:
        super().__init__()
        self.inputs, self.rows, self.stride = inputs, rows, stride
        grains = outputs // grain
        count = min(grains, -(-rows * inputs * outputs // PART_WEIGHTS))
        self.bounds = [grains * part // count * grain for part in range(count + 1)]
        self.parts = nn.ModuleList(Matrix(rows * inputs, end - start) for start, end in itertools.pairwise(self.bounds))

    def forward(self, padded: Tensor, out: Tensor) -> Tensor:
        """padded: rows of `inputs`, contiguous. out: (windows, outputs), which is written."""
        windows = padded.as_strided((len(out), self.rows * self.inputs), (self.stride * self.inputs, 1)).contiguous()
        for part, (start, end) in zip(self.parts, itertools.pairwise(self.bounds), strict=True):
            part(windows, out[:, start:end])
        return out


class ResidualUnit(nn.Module):
    """A dilated and a pointwise convolution, each after a snake, added to their input."""

    def __init__(self, channels: int, dilation: int, *, depthwise: bool) -> None:
        super().__init__()
        self.snake = Snake(channels)
        self.dilated = Depthwise(channels, dilation) if depthwise else Dense(channels, channels, dilation)
        self.pointwise = Matrix(channels, channels)

    def forward(self, x: Tensor, past: Past) -> None:
        """x: (length, channels), added to in place."""
        padded = room(self.dilated, self.dilated.reach, x, past)
        self.snake(x, padded[self.dilated.reach :])
        keep(self.dilated, self.dilated.reach, padded, past)
        self.pointwise(add_waves(self.dilated(padded)), x, total=True)


class Units(nn.Module):
    """A block's residual units."""

    def __init__(self, channels: int, *, depthwise: bool) -> None:
        super().__init__()
        self.channels = channels
        self.units = nn.ModuleList(ResidualUnit(channels, dilation, depthwise=depthwise) for dilation in DILATIONS)

    def forward(self, x: Tensor, past: Past, check: Check) -> None:
        """x: (length, channels), changed in place, tile by tile."""
        for start, end in tiles(len(x), tile_elements(x.device) // self.channels):
            check()
            for unit in self.units:
                unit(x[start:end], past)
