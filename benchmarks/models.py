"""Plain torch models of usual shapes and sizes with random weights: what the memory runtime is measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 1024
HEADS = 16
FEED_FORWARD = 2816
VOCABULARY = 1024
MAX_LENGTH = 128
LM_LAYERS = 24
DIT_BLOCKS = 20
LATENT = 64
MB = 1 << 20

Cache = tuple[Tensor, Tensor]
"""Keys and values, (heads, MAX_LENGTH, width of a head) each."""


def _heads(x: Tensor) -> Tensor:
    """(length, width) → (heads, length, width of a head)."""
    return x.view(x.shape[0], HEADS, -1).transpose(0, 1)


class DecoderLayer(nn.Module):
    """A layer as in Llama: seven projections, attention over a cache, a gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm = nn.RMSNorm(WIDTH)
        self.gate = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.up = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.down = nn.Linear(FEED_FORWARD, WIDTH, bias=False)

    def forward(self, x: Tensor, cache: Cache, start: int) -> Tensor:
        """x: (length, width), the positions from `start` on."""
        keys, values = cache
        end = start + x.shape[0]
        hidden = self.attention_norm(x)
        keys[:, start:end] = _heads(self.key(hidden))
        values[:, start:end] = _heads(self.value(hidden))
        mixed = functional.scaled_dot_product_attention(
            _heads(self.query(hidden)), keys[:, :end], values[:, :end], is_causal=x.shape[0] > 1
        )
        x = x + self.output(mixed.transpose(0, 1).reshape(x.shape))
        hidden = self.norm(x)
        return x + self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class DecoderLm(nn.Module):
    """An autoregressive language model over VOCABULARY symbols; 310 million parameters with 24 layers."""

    def __init__(self, layers: int = LM_LAYERS) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(MAX_LENGTH, WIDTH)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(layers))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, caches: Sequence[Cache], start: int) -> Tensor:
        """tokens: (length,) → logits of the last, (vocabulary,)."""
        positions = torch.arange(start, start + tokens.shape[0], device=tokens.device)
        x = self.embedding(tokens) + self.position(positions)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, start)
        logits: Tensor = self.head(self.norm(x[-1]))
        return logits


class DitBlock(nn.Module):
    """A diffusion transformer's block: attention and feed-forward, both modulated by the step's time."""

    def __init__(self) -> None:
        super().__init__()
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)
        self.attention_norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """x: (length, width), time: (width,)."""
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulation(functional.silu(time)).chunk(6)
        hidden = self.attention_norm(x) * (1 + scale) + shift
        mixed = functional.scaled_dot_product_attention(
            _heads(self.query(hidden)), _heads(self.key(hidden)), _heads(self.value(hidden))
        )
        x = x + gate * self.output(mixed.transpose(0, 1).reshape(x.shape))
        hidden = self.norm(x) * (1 + scale_2) + shift_2
        return x + gate_2 * self.down(functional.gelu(self.up(hidden), approximate="tanh"))


class Dit(nn.Module):
    """A diffusion transformer; 380 million parameters with 20 blocks."""

    def __init__(self, blocks: int = DIT_BLOCKS) -> None:
        super().__init__()
        self.first = nn.Linear(LATENT, WIDTH)
        self.time = nn.Sequential(nn.Linear(1, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(DitBlock() for _ in range(blocks))
        self.last = nn.Linear(WIDTH, LATENT)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """x: (length, latent), time: (1,) → the same shape as x."""
        condition = self.time(time)
        x = self.first(x)
        for block in self.blocks:
            x = block(x, condition)
        velocity: Tensor = self.last(x)
        return velocity


class Leaves(nn.Module):
    """A unit of seven linear layers of `width`, called one after the other."""

    def __init__(self, width: int, leaves: int = 7) -> None:
        super().__init__()
        self.leaves = nn.ModuleList(nn.Linear(width, width) for _ in range(leaves))

    def forward(self, x: Tensor) -> Tensor:
        for leaf in self.leaves:
            x = leaf(x)
        return x


class Scheduled(nn.Module):
    """Units that run in a given order, by number, each unit called as often as it stands there.

    between: called after each unit.
    """

    def __init__(
        self, units: Sequence[nn.Module], order: Sequence[int], between: Callable[[], object] | None = None
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))  # a model's first parameter never streams
        self.units = nn.ModuleList(units)
        self.order = list(order)
        self.between = between

    def memory_units(self) -> list[nn.Module]:
        return list(self.units)

    def forward(self, x: Tensor) -> Tensor:
        for index in self.order:
            x = self.units[index](x) * self.scale
            if self.between is not None:
                self.between()
        return x


class Block(nn.Module):
    """One linear layer from 256 channels to as many as make `size_bytes` of float32, cut back to 256."""

    CHANNELS = 256

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(self.CHANNELS, max(self.CHANNELS, size_bytes // (4 * self.CHANNELS)), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y[..., : self.CHANNELS]


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def randomised(module: nn.Module, seed: int = 1) -> nn.Module:
    """Small random weights from a generator of its own, so that numbers stay finite over many layers."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if "bias" in name.rpartition(".")[2]:
            parameter.normal_(0.0, 0.02, generator=generator)
        elif parameter.dim() > 1:
            parameter.normal_(0.0, 0.5 * parameter.shape[-1] ** -0.5, generator=generator)
    return module.eval().requires_grad_(False)
