"""Transformer layers of the Llama kind: grouped-query attention, rotary positions, gated MLP.

Qwen3 norms queries and keys too; MiniCPM4 scales residuals and positions (μP, LongRoPE).

Arithmetic: RMSNorm (Zhang, Sennrich, https://arxiv.org/abs/1910.07467) and rotary angles in float32, then cast; rotary
position embedding over halves (Su et al., https://arxiv.org/abs/2104.09864); SwiGLU (Shazeer,
https://arxiv.org/abs/2002.05202); grouped queries (Ainslie et al., https://arxiv.org/abs/2305.13245); factors of rotary
frequencies (LongRoPE, Ding et al., https://arxiv.org/abs/2402.13753).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..nn.linear import Linear

if TYPE_CHECKING:
    from .positions import Masks, Rope

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Sizes of a decoder. windows: for each layer how many positions it sees, its own included; 0: all.

    rope_factors: what each rotary frequency is divided by; none: 1. rope_scale: what cosines and sines are multiplied
    with. residual_scale: what each layer's attention and MLP add is multiplied with. causal: False: every position sees
    all.
    """

    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    activation: str = "silu"
    attention_bias: bool = False
    windows: tuple[int, ...] = ()
    qk_norm: bool = True
    rope_factors: tuple[float, ...] = ()
    rope_scale: float = 1.0
    residual_scale: float = 1.0
    causal: bool = True

    def window(self, layer: int) -> int:
        return self.windows[layer] if self.windows else 0


class KeyStore(Protocol):
    """What attention needs of a cache; see `KvCache`."""

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]: ...


class RmsNorm(nn.Module):
    """(…, width) → the same."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = x.float()
        squares = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        return wide.mul_(squares.add_(self.eps).rsqrt_()).to(x.dtype).mul_(self.weight)


class NoCache:
    """Keeps nothing: positions see each other only."""

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return keys, values


class HeadProjections(nn.Module):
    """An attention's weights: from positions to normed, turned heads, and back. rope: None: they aren't turned."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        bias = config.attention_bias
        self.q_proj = Linear(config.width, config.heads * config.head_dim, bias=bias)
        self.k_proj = Linear(config.width, config.kv_heads * config.head_dim, bias=bias)
        self.v_proj = Linear(config.width, config.kv_heads * config.head_dim, bias=bias)
        self.o_proj = Linear(config.heads * config.head_dim, config.width, bias=bias)
        self.q_norm: nn.Module = RmsNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm: nn.Module = RmsNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()

    def queries(self, x: Tensor, new: int, rope: Rope | None) -> Tensor:
        """(rows · new, width) → (rows, new, heads, head_dim)."""
        queries: Tensor = self.q_norm(self.q_proj(x).view(-1, new, self.heads, self.head_dim))
        return queries if rope is None else rope.turn(queries)

    def keys(self, x: Tensor, new: int, rope: Rope | None) -> Tensor:
        """(rows · new, width) → (rows, new, key heads, head_dim)."""
        keys: Tensor = self.k_norm(self.k_proj(x).view(-1, new, self.kv_heads, self.head_dim))
        return keys if rope is None else rope.turn(keys)

    def values(self, x: Tensor, new: int) -> Tensor:
        """(rows · new, width) → (rows, new, key heads, head_dim)."""
        values: Tensor = self.v_proj(x).view(-1, new, self.kv_heads, self.head_dim)
        return values

    def output(self, mixed: Tensor) -> Tensor:
        """(rows, new, heads, head_dim) → (rows · new, width)."""
        projected: Tensor = self.o_proj(mixed.reshape(-1, self.heads * self.head_dim))
        return projected


class Attention(HeadProjections):
    """(rows · new, width) → the same; new positions see those of the cache and each other as `mask` says.

    kept: the positions whose outputs are wanted; None: all. Of causal layers that may be the last one.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.causal = config.causal

    def forward(
        self,
        x: Tensor,
        new: int,
        rope: Rope | None,
        mask: Tensor | None,
        cache: KeyStore,
        layer: int,
        kept: slice | None = None,
    ) -> Tensor:
        asking, turn = (x, rope) if kept is None else (picked(x, new, kept), rope and rope.of(kept))
        queries = self.queries(asking, len(asking) * new // len(x), turn)
        keys, values = self.keys(x, new, rope), self.values(x, new)
        all_keys, all_values = cache.append(layer, keys.transpose(1, 2), values.transpose(1, 2))
        return self.output(self._mixed(queries, all_keys, all_values, mask))

    def _mixed(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """queries: (rows, new, heads, head_dim); the result too."""
        rows, new, _, _ = queries.shape
        if new == 1:
            grouped = queries.view(rows, self.kv_heads, self.heads // self.kv_heads, self.head_dim)
            return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None and self.causal,
            enable_gqa=self.heads != self.kv_heads,
        )
        return mixed.transpose(1, 2)


class Mlp(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.width, config.inner, bias=False)
        self.up_proj = Linear(config.width, config.inner, bias=False)
        self.down_proj = Linear(config.inner, config.width, bias=False)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return projected


class DecoderLayer(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.width, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.width, config.norm_eps)
        self.mlp = Mlp(config)
        self.residual_scale = config.residual_scale

    def forward(
        self,
        x: Tensor,
        new: int,
        rope: Rope | None,
        mask: Tensor | None,
        cache: KeyStore,
        layer: int,
        kept: slice | None = None,
    ) -> Tensor:
        """x: (rows · new, width), two dimensions, in which a linear layer is one operation."""
        mixed = self.self_attn(self.input_layernorm(x), new, rope, mask, cache, layer, kept)
        x = self._sum(x if kept is None else picked(x, new, kept), mixed)
        return self._sum(x, self.mlp(self.post_attention_layernorm(x)))

    def _sum(self, x: Tensor, added: Tensor) -> Tensor:
        return x + added if self.residual_scale == 1 else x + added * self.residual_scale


class Decoder(nn.Module):
    """Embeddings of new positions (rows, new, width) → their hidden states, after the final norm.

    rope: None if positions aren't told apart. kept: see `Attention`; of the others nothing is given.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.width, config.norm_eps)

    def forward(
        self, x: Tensor, rope: Rope | None, masks: Masks, cache: KeyStore, kept: slice | None = None
    ) -> Tensor:
        rows, new, width = x.shape
        x = x.flatten(0, 1)
        last = self.config.layers - 1
        for index, layer in enumerate(self.layers):
            mask = masks.of(self.config.window(index))
            x = layer(x, new, rope, mask, cache, index, kept if index == last else None)
        normed: Tensor = self.norm(x)
        return normed.view(rows, -1, width)


def picked(x: Tensor, new: int, kept: slice) -> Tensor:
    """(rows · new, width) → (rows · kept positions, width)."""
    return x.view(len(x) // new, new, -1)[:, kept].flatten(0, 1)
