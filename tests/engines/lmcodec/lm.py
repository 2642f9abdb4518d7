"""A small autoregressive language model over frames of codes: conditioning, talker, and a code predictor per frame."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mizuoto_runtime.lm.cache import CacheKind, KvCache, new_cache


@dataclass(frozen=True)
class LmConfig:
    """codes: of each codebook; the talker's first codebook has one more, which ends the sequence."""

    width: int = 192
    heads: int = 6
    kv_heads: int = 2
    inner: int = 448
    layers: int = 3
    predictor_layers: int = 2
    conditioning_layers: int = 2
    codebooks: int = 3
    codes: int = 64
    bytes: int = 256
    tied: bool = True
    dtype: torch.dtype = torch.float32

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def end(self) -> int:
        return self.codes


class Attention(nn.Module):
    """(rows, new, width) → the same; with a cache each new position sees those before it, else all see all."""

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.query = nn.Linear(config.width, config.heads * config.head_dim)
        self.key = nn.Linear(config.width, config.kv_heads * config.head_dim)
        self.value = nn.Linear(config.width, config.kv_heads * config.head_dim)
        self.out = nn.Linear(config.heads * config.head_dim, config.width, bias=False)

    def forward(self, x: Tensor, cache: KvCache | None, layer: int) -> Tensor:
        queries = self._split(self.query(x), self.heads)
        keys, values = self._split(self.key(x), self.kv_heads), self._split(self.value(x), self.kv_heads)
        mask = None
        if cache is not None:
            keys, values = cache.append(layer, keys, values)
            new, held = queries.shape[2], keys.shape[2]
            mask = torch.ones(new, held, dtype=torch.bool, device=x.device).tril(held - new)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
        projected: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return projected

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(2, (heads, self.head_dim)).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, config: LmConfig, inner: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.width)
        self.gate = nn.Linear(config.width, inner, bias=False)
        self.up = nn.Linear(config.width, inner, bias=False)
        self.down = nn.Linear(inner, config.width, bias=False)

    def forward(self, x: Tensor, cache: KvCache | None, layer: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cache, layer)
        inner = self.mlp_norm(x)
        result: Tensor = x + self.down(functional.silu(self.gate(inner)) * self.up(inner))
        return result


class Layers(nn.Module):
    def __init__(self, config: LmConfig, layers: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(config.width)

    def forward(self, x: Tensor, cache: KvCache | None = None) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x, cache, index)
        result: Tensor = self.norm(x)
        return result


class Talker(nn.Module):
    """conditioning: runs once. trunk: once a frame. predictor: once for each further codebook of a frame."""

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.config = config
        self.text = nn.Embedding(config.bytes, config.width)
        self.codes = nn.Embedding(config.codes + 1, config.width)
        self.further = nn.ModuleList(nn.Embedding(config.codes, config.width) for _ in range(config.codebooks - 1))
        self.conditioning = Layers(config, config.conditioning_layers, 2 * config.inner)
        self.trunk = Layers(config, config.layers, config.inner)
        self.predictor = Layers(config, config.predictor_layers, config.inner)
        self.head = nn.Linear(config.width, config.codes + 1, bias=False)
        self.further_heads = nn.ModuleList(
            nn.Linear(config.width, config.codes, bias=False) for _ in range(config.codebooks - 1)
        )

    def tie(self) -> None:
        """Let the head be the embedding of the codes, if the model is of that kind."""
        if self.config.tied:
            self.head.weight = self.codes.weight

    def condition(self, text: Tensor) -> Tensor:
        """(1, length) bytes → (1, 1 + length, width): what generation begins with."""
        embedded = self.text(text)
        manner = self.conditioning(embedded).mean(dim=1, keepdim=True)
        return torch.cat((manner, embedded), dim=1)

    def embed(self, frame: list[int]) -> Tensor:
        """A frame's codes → (1, 1, width)."""
        device = self.codes.weight.device
        embedded = self.codes(torch.tensor([[frame[0]]], device=device))
        for codes, code in zip(self.further, frame[1:], strict=True):
            embedded = embedded + codes(torch.tensor([[code]], device=device))
        return embedded

    def step(self, x: Tensor, cache: KvCache) -> tuple[Tensor, Tensor]:
        """New positions → (hidden of the last one (1, 1, width), logits of its first code)."""
        hidden = self.trunk(x, cache)[:, -1:]
        return hidden, self.head(hidden)[0, 0].float()


class Predictor:
    """The codes of one frame after its first, each from those before it."""

    def __init__(self, model: Talker, kind: CacheKind) -> None:
        self._model = model
        self._cache = new_cache(kind, model.config.predictor_layers)

    def logits(self, x: Tensor, codebook: int) -> Tensor:
        """The next code's, after new positions `x`; codebook 0 begins a frame."""
        if codebook == 0:
            self._cache.crop(0)
        hidden = self._model.predictor(x, self._cache)[:, -1]
        return self._model.further_heads[codebook](hidden)[0].float()
