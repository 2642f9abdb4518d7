"""What both transformers are made of.

Arithmetic: rotary positions (Su et al., https://arxiv.org/abs/2104.09864), ConvNeXt V2 with global response
normalisation (Woo et al., https://arxiv.org/abs/2301.00808), RMSNorm (Zhang, Sennrich,
https://arxiv.org/abs/1910.07467). Upstream: f5_tts/model/modules.py of f5-tts 1.1.22.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...nn.attention import attend
from ...nn.linear import Linear
from .config import CONV_GROUPS, Architecture

NORM_EPSILON = 1e-6
LEAST_LENGTH = 1e-12
RESPONSE_EPSILON = 1e-6
TIME_FREQUENCIES = 128
TIME_SCALE = 1000
THETA = 10_000.0


def empty(*shape: int) -> nn.Parameter:
    """A weight without initial values: weights are always loaded."""
    return nn.Parameter(torch.empty(shape))


class Conv(nn.Conv1d):
    """(rows, channels, length) → the same; keeps the length."""

    def __init__(self, channels: int, kernel_size: int, groups: int) -> None:
        super().__init__(channels, channels, kernel_size, padding=kernel_size // 2, groups=groups)

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, x: Tensor, *, bias: bool = True) -> Tensor:
        return functional.conv1d(x, self.weight, self.bias if bias else None, padding=self.padding, groups=self.groups)


class Projection(nn.Linear):
    """(rows, inputs, length) → (rows, outputs, length), of some of the inputs: what they add to the whole product."""

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, x: Tensor, first: int, *, bias: bool = False) -> Tensor:  # type: ignore[override]
        """x: the inputs from number `first` on."""
        weight = self.weight[:, first : first + x.shape[1], None]
        return functional.conv1d(x, weight, self.bias if bias else None)


class RmsNorm(nn.Module):
    """x / |x| · √width · gain."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = empty(width)

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) → the same, in `x`'s dtype. float16 holds neither long lengths nor the least one."""
        dtype = torch.float32 if x.dtype == torch.float16 else x.dtype
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype).clamp_(min=LEAST_LENGTH)
        normed: Tensor = (x / lengths).mul_(self.gain * x.shape[-1] ** 0.5).to(x.dtype)
        return normed


class HeadNorm(nn.Module):
    """RMSNorm within a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = empty(width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, NORM_EPSILON)


class Times(nn.Module):
    """Times → what conditions the blocks on them, (times, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = Linear(2 * TIME_FREQUENCIES, width)
        self.second = Linear(width, width)

    def forward(self, times: Tensor) -> Tensor:
        """times: (count) from 0 to 1, in the model's dtype."""
        steps = torch.arange(TIME_FREQUENCIES, device=times.device).float()
        frequencies = torch.exp(steps * -(math.log(THETA) / (TIME_FREQUENCIES - 1)))
        angles = TIME_SCALE * times[:, None] * frequencies[None]
        waves = torch.cat((angles.sin(), angles.cos()), dim=-1).to(times.dtype)
        conditions: Tensor = self.second(functional.silu(self.first(waves)))
        return conditions


class Attention(nn.Module):
    """Attention of all positions to all; the first heads know where they are."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.heads, self.width = architecture.heads, architecture.dim_head
        self.rotated = architecture.heads if architecture.pe_attn_head is None else architecture.pe_attn_head
        self.masked = architecture.attn_mask_enabled
        self.queries = Linear(architecture.dim, architecture.inner)
        self.keys = Linear(architecture.dim, architecture.inner)
        self.values = Linear(architecture.dim, architecture.inner)
        self.output = Linear(architecture.inner, architecture.dim)
        self.query_norm = HeadNorm(architecture.dim_head) if architecture.qk_norm else None
        self.key_norm = HeadNorm(architecture.dim_head) if architecture.qk_norm else None

    def forward(self, x: Tensor, rotary: Tensor, mask: Tensor | None) -> Tensor:
        """x: (rows, length, width). rotary: see `rotary_table`. mask: (rows, length), true where there is sound."""
        queries = self._heads(self.queries(x), self.query_norm, rotary)
        keys = self._heads(self.keys(x), self.key_norm, rotary)
        values = self.values(x).view(*x.shape[:2], self.heads, self.width).transpose(1, 2)
        seen = mask[:, None, None] if mask is not None and self.masked else None
        mixed = attend(queries, keys, values, seen)
        y: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return y if mask is None else y.masked_fill(~mask[..., None], 0.0)

    def _heads(self, x: Tensor, norm: nn.Module | None, rotary: Tensor) -> Tensor:
        """(rows, length, inner) → (rows, heads, length, head width), normalised and rotated."""
        x = x.view(*x.shape[:2], self.heads, self.width)
        x = x if norm is None else norm(x)
        if self.rotated:
            rotate_(x[:, :, : self.rotated], rotary)
        return x.transpose(1, 2)


class Mlp(nn.Module):
    """Two products with GELU between them, by its tanh formula."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.widen = Linear(architecture.dim, architecture.mlp, gelu="tanh")
        self.narrow = Linear(architecture.mlp, architecture.dim)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(self.widen(x))
        return y


class Response(nn.Module):
    """Global response normalisation: by each channel's norm over time, against the mean of all channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = empty(1, 1, width)
        self.beta = empty(1, 1, width)

    def forward(self, x: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        shares: Tensor = norms / (norms.mean(dim=-1, keepdim=True) + RESPONSE_EPSILON)
        return self.gamma * (x * shares) + self.beta + x


class TextBlock(nn.Module):
    """A ConvNeXt V2 block over (rows, length, width)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.depthwise = Conv(width, 7, groups=width)
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.widen = Linear(width, inner, gelu="none")
        self.response = Response(inner)
        self.narrow = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x.transpose(1, 2)).transpose(1, 2))
        narrowed: Tensor = self.narrow(self.response(self.widen(y)))
        return x + narrowed


class Position(nn.Module):
    """Two grouped convolutions, with which a position knows its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = Conv(width, 31, CONV_GROUPS)
        self.second = Conv(width, 31, CONV_GROUPS)


def rotary_table(frequencies: Tensor, length: int) -> Tensor:
    """(length, 1, pairs) complex64: by what each pair of a head's values is turned. frequencies: (pairs).

    The angles are rounded to the dtype of `frequencies`, as upstream's are.
    """
    places = torch.arange(length, device=frequencies.device).to(frequencies.dtype)
    angles = places[:, None] * frequencies[None]
    return torch.complex(angles.cos().float(), angles.sin().float())[:, None]


def rotate_(x: Tensor, rotary: Tensor) -> None:
    """x: (rows, length, heads, width); each pair of neighbours is turned, in float32."""
    wide = x.float()
    torch.view_as_complex(wide.view(*x.shape[:-1], -1, 2)).mul_(rotary)
    if wide is not x:
        x.copy_(wide)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """x: (rows, channels, length), 0 where `mask`, (rows, length), is false."""
    return x if mask is None else x.masked_fill(~mask[:, None], 0.0)
