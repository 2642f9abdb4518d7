"""Modules of the kinds that offloading code gets wrong, each small, with what to feed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 192


class Wrapped(nn.Module):
    """Reads the weight of another layer, as adapters do."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, 8 * WIDTH)
        self.down = nn.Linear(WIDTH, 4, bias=False)
        self.up = nn.Linear(4, 8 * WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        merged = self.base.weight + self.up.weight @ self.down.weight
        return functional.linear(x, merged, self.base.bias)[..., :WIDTH]


class Counting(nn.Module):
    """Changes its buffers in every call, one in place and one anew."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 8 * WIDTH)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x.sum()
        return self.layer(x)[..., :WIDTH] + self.calls


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.attention(x, x, x, need_weights=False)[0]
        return mixed + self.widen(x)[..., :WIDTH]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = kind(WIDTH, WIDTH, batch_first=True)
        self.widen = nn.Linear(WIDTH, 8 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0] + self.widen(x)[..., :WIDTH]


class Convolved(nn.Module):
    """normalise: how the weight is parametrised."""

    def __init__(self, normalise: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.wide = normalise(nn.Conv1d(WIDTH, 4 * WIDTH, 3, padding=1))
        self.narrow = nn.ConvTranspose1d(4 * WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(self.wide(x.transpose(1, 2))).transpose(1, 2)


class Stepped(nn.Module):
    """Entered through another method than forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))

    def step(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Stack(nn.Module):
    """order: the layers to run, by number; each once by default. step: enter through their `step`."""

    def __init__(self, layers: list[nn.Module], order: list[int] | None = None, *, step: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(WIDTH)
        self.order = list(range(len(layers))) if order is None else order
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        for index in self.order:
            layer = self.layers[index]
            x = self.norm(x * self.scale + (layer.step(x) if self.step else layer(x)))
        return x


def linear(dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.GELU(), nn.Linear(8 * WIDTH, WIDTH)).to(dtype)


def tied() -> nn.Module:
    """Two layers share one weight inside each unit, and the first units' weights are shared with the module above."""
    stack = Stack([linear() for _ in range(3)])
    stack.layers[1][0].weight = stack.layers[2][0].weight
    return stack


def strided() -> nn.Module:
    stack = Stack([linear() for _ in range(3)])
    for layer in stack.layers:
        layer[0].weight = nn.Parameter(layer[0].weight.detach().t().contiguous().t())
        layer.register_parameter("nothing", nn.Parameter(torch.empty(0, 7)))
    return stack


def inferred() -> nn.Module:
    with torch.inference_mode():
        return Stack([linear() for _ in range(3)])


def kinds() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """Name and maker of each kind."""
    yield "plain", lambda: Stack([linear() for _ in range(4)])
    yield "twice and out of order", lambda: Stack([linear() for _ in range(4)], [2, 2, 0, 3, 1, 1, 0])
    yield "never called", lambda: Stack([linear() for _ in range(4)], [0, 2])
    yield "reads a weight", lambda: Stack([Wrapped() for _ in range(3)])
    yield "changes buffers", lambda: Stack([Counting() for _ in range(3)])
    yield "attention", lambda: Stack([Attention() for _ in range(3)])
    yield "lstm", lambda: Stack([Recurrent(nn.LSTM) for _ in range(3)])
    yield "gru", lambda: Stack([Recurrent(nn.GRU) for _ in range(3)])
    yield "old weight_norm", lambda: Stack([Convolved(old_weight_norm) for _ in range(3)])
    yield "weight_norm", lambda: Stack([Convolved(nn.utils.parametrizations.weight_norm) for _ in range(3)])
    yield "other method", lambda: Stack([Stepped() for _ in range(3)], step=True)
    yield "tied", tied
    yield "strided and empty", strided
    yield "inference tensors", inferred
    yield "uneven", lambda: Stack([linear(), Counting(), nn.Sequential(linear(), linear(), linear()), linear()])


def old_weight_norm(module: nn.Module) -> nn.Module:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated in torch, but official checkpoints use it
        return nn.utils.weight_norm(module)
