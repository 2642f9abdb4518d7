"""Tiny modules of many kinds, for tests that make thousands of calls. Their units are as small as units can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.types import Kind
from tests.memory.modules import old_weight_norm

WIDTH = 128
ROWS = 192
STATEFUL = "counting"


class Tiny(nn.Module):
    """Layers that are units, whatever they weigh. order: those to run, by number; each once by default.

    embedding: looked up first; head: its weight is the embedding's.
    """

    def __init__(
        self, layers: list[nn.Module], order: list[int] | None = None, *, embedding: bool = False, head: bool = False
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.embedding = nn.Embedding(ROWS, WIDTH) if embedding or head else None
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, ROWS, bias=False) if head else None
        if self.head is not None and self.embedding is not None:
            self.head.weight = self.embedding.weight
        self.order = list(range(len(layers))) if order is None else order

    def memory_units(self) -> list[nn.Module]:
        return list(self.layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = x + self.embedding(torch.arange(x.shape[1]))
        for index in self.order:
            x = self.norm(x * self.scale + self.layers[index](x))
        return x if self.head is None else self.head(x)


class Counting(nn.Module):
    """Changes a buffer in place and another anew in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x.mean()
        return self.layer(x) + self.calls


class Merged(nn.Module):
    """Reads the weight of another layer, as adapters do."""

    def __init__(self) -> None:
        super().__init__()
        self.base = linear()
        self.adapter = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.base.weight + self.adapter.weight, self.base.bias)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return mixed


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.widen = linear()
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.rnn(self.widen(x))[0]
        return mixed


class Convolved(nn.Module):
    """normalise: how the weight is parametrised."""

    def __init__(self, normalise: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.convolution = normalise(nn.Conv1d(WIDTH, WIDTH, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        convolved: Tensor = self.convolution(x.transpose(1, 2))
        return convolved.transpose(1, 2)


def linear() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH)


def layers(count: int) -> list[nn.Module]:
    return [linear() for _ in range(count)]


def _tied() -> nn.Module:
    tiny = Tiny(layers(3))
    tiny.layers[1].weight = tiny.layers[2].weight
    return tiny


def _strided() -> nn.Module:
    tiny = Tiny(layers(3))
    for layer in tiny.layers:
        layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())
        layer.register_parameter("nothing", nn.Parameter(torch.empty(0, 7)))
    return tiny


KINDS: Mapping[str, Callable[[], nn.Module]] = {
    "plain": lambda: Tiny(layers(4)),
    "uneven": lambda: Tiny([linear(), nn.Sequential(*layers(3)), linear(), nn.Sequential(*layers(2))]),
    "out of order": lambda: Tiny(layers(4), [2, 2, 0, 3, 0]),
    STATEFUL: lambda: Tiny([Counting() for _ in range(3)]),
    "reads a weight": lambda: Tiny([Merged() for _ in range(2)]),
    "attention": lambda: Tiny([Attention() for _ in range(2)]),
    "recurrent": lambda: Tiny([Recurrent() for _ in range(2)]),
    "weight_norm": lambda: Tiny([Convolved(nn.utils.parametrizations.weight_norm) for _ in range(3)]),
    "old weight_norm": lambda: Tiny([Convolved(old_weight_norm) for _ in range(3)]),
    "tied": _tied,
    "strided": _strided,
    "embedding": lambda: Tiny(layers(3), embedding=True),
    "tied embedding": lambda: Tiny(layers(3), head=True),
}


def made(kind: str, seed: int) -> nn.Module:
    """A module of that kind in eval mode, its weights drawn from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        module = KINDS[kind]()
        for parameter in module.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return module.eval().requires_grad_(False)


INPUTS = torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(9))


@torch.no_grad()
def output(module: nn.Module) -> Tensor:
    result: Tensor = module(INPUTS)
    return result


def component(kind: str = "plain", order: Kind = "sequence", seed: int = 1) -> ModelHandle:
    """A handle on a module of that kind."""
    return ModelHandle(f"{kind} {seed}", made(kind, seed), order)


UNIT = component().costs()[0].size_bytes
SIZE = component().size_bytes
FIXED = SIZE - 4 * UNIT
