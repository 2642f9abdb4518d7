"""What the codec's two halves share: causal convolutions computed tile by tile, and a transformer.

Arithmetic: Mimi (Défossez et al., https://arxiv.org/abs/2410.00037, section 3.3), rotary positions (Su et al.,
https://arxiv.org/abs/2104.09864), RMSNorm (Zhang, Sennrich, https://arxiv.org/abs/1910.07467).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .codec_config import TransformerConfig

Past = dict[nn.Module, Tensor]
"""What a convolution needs of the tiles before: layer → the last of its inputs (or outputs, where they overlap)."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
}


def empty(*shape: int) -> nn.Parameter:
    """A weight without initial values: weights are always loaded."""
    return nn.Parameter(torch.empty(shape))


class Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""


class RmsNorm(nn.Module):
    """Normalised in float32, scaled in the input's dtype."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = empty(width)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)).to(x.dtype)


class LayerNorm(nn.LayerNorm):
    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        inner, kv_inner = config.heads * config.head_width, config.kv_heads * config.head_width
        self.q_proj = Linear(config.width, inner, bias=config.bias)
        self.k_proj = Linear(config.width, kv_inner, bias=config.bias)
        self.v_proj = Linear(config.width, kv_inner, bias=config.bias)
        self.o_proj = Linear(inner, config.width, bias=config.bias)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """x: (1, length, width). mask: (length, length), true where seen; None: all before."""
        queries = rotate(self._heads(self.q_proj(x), self.heads), rotary)
        keys = rotate(self._heads(self.k_proj(x), self.kv_heads), rotary)
        values = self._heads(self.v_proj(x), self.kv_heads)
        groups = self.heads // self.kv_heads
        if groups > 1:
            keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
        seen = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None and x.shape[1] > 1
        )
        mixed: Tensor = self.o_proj(seen.transpose(1, 2).flatten(2))
        return mixed

    @staticmethod
    def _heads(x: Tensor, heads: int) -> Tensor:
        """(1, length, heads · head width) → (1, heads, length, head width)."""
        return x.view(1, x.shape[1], heads, -1).transpose(1, 2)


class GatedMlp(nn.Module):
    """As in LLaMA: one projection gates another."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.width, config.hidden, bias=False)
        self.up_proj = Linear(config.width, config.hidden, bias=False)
        self.down_proj = Linear(config.hidden, config.width, bias=False)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return y


class PlainMlp(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.fc1 = Linear(config.width, config.hidden, bias=False)
        self.fc2 = Linear(config.hidden, config.width, bias=False)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(self.activation(self.fc1(x)))
        return y


class Layer(nn.Module):
    """A transformer's layer; what attention and MLP add is scaled by channel."""

    def __init__(self, config: TransformerConfig, *, gated: bool) -> None:
        super().__init__()
        norm = RmsNorm if gated else LayerNorm
        self.input_norm = norm(config.width, config.epsilon)
        self.attention = Attention(config)
        self.attention_scale = empty(config.width)
        self.mlp_norm = norm(config.width, config.epsilon)
        self.mlp = GatedMlp(config) if gated else PlainMlp(config)
        self.mlp_scale = empty(config.width)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        x = x + self.attention_scale * self.attention(self.input_norm(x), rotary, mask)
        y: Tensor = x + self.mlp_scale * self.mlp(self.mlp_norm(x))
        return y


class Transformer(nn.Module):
    """gated: RMSNorm and gated MLPs (the decoder's), else LayerNorm and plain ones (Mimi's)."""

    def __init__(self, config: TransformerConfig, *, gated: bool) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config, gated=gated) for _ in range(config.layers))

    def forward(self, x: Tensor, check: Callable[[], None]) -> Tensor:
        """x: (1, length, width)."""
        length, config = x.shape[1], self.config
        rotary = rotary_angles(length, config.head_width, config.rope_theta, x)
        mask = None if config.window is None or length <= config.window else _band(length, config.window, x.device)
        for layer in self.layers:
            check()
            x = layer(x, rotary, mask)
        return x


def rotary_angles(length: int, width: int, theta: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (length, width), computed in float32; dtype and device those of `like`."""
    steps = torch.arange(0, width, 2, dtype=torch.int64).float().to(like.device) / width
    angles = torch.arange(length, device=like.device).float()[:, None] * (1.0 / theta**steps)[None]
    angles = torch.cat((angles, angles), dim=1)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """x: (1, heads, length, width), its halves rotated against each other."""
    cosines, sines = rotary
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


def _band(length: int, window: int, device: torch.device) -> Tensor:
    """True where the column is among the `window` positions that end with the row's."""
    seen = torch.ones(length, length, dtype=torch.bool, device=device)
    return seen.tril_().triu_(1 - window)
