"""HuBERT: samples at 16 kHz → the mean of what its layers make of them.

Arithmetic: Hsu et al., https://arxiv.org/abs/2106.07447; wav2vec 2.0 (Baevski et al.,
https://arxiv.org/abs/2006.11477, section 2). Upstream: `HubertModel` of transformers 5.24.0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .codec_config import HubertConfig
from .codec_layers import BLOCK_ELEMENTS, Conv, Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
}
FEATURE_EPSILON = 1e-5


class ChannelNorm(nn.Module):
    """Every channel is normalised over time."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor, first: int) -> Tensor:
        """x: (1, channels, length), some channels from number `first` on."""
        part = slice(first, first + x.shape[1])
        return functional.group_norm(x, x.shape[1], self.weight[part], self.bias[part], FEATURE_EPSILON)


class Feature(nn.Module):
    """A convolution that shortens, and its activation. normed: every channel is normalised over time between them."""

    def __init__(self, config: HubertConfig, index: int, *, normed: bool) -> None:
        super().__init__()
        inputs, outputs = (1, *config.conv_dim)[index], config.conv_dim[index]
        stride = config.conv_stride[index]
        self.conv = Conv(inputs, outputs, config.conv_kernel[index], stride, bias=config.conv_bias)
        self.norm = ChannelNorm(outputs) if normed else None
        self.activation = ACTIVATIONS[config.conv_activation]

    def forward(self, x: Tensor) -> Tensor:
        """(1, inputs, length) → (1, outputs, shorter)."""
        y: Tensor = self.conv(x)
        channels = y.shape[1]
        block = max(1, BLOCK_ELEMENTS // max(1, y.shape[2])) if y.device.type == "cpu" else channels
        for start in range(0, channels, block):
            part = y[:, start : start + block]
            part.copy_(self.activation(part if self.norm is None else self.norm(part, start)))
        return y


class Positions(nn.Module):
    """What a wide convolution says of a position's surroundings."""

    def __init__(self, config: HubertConfig) -> None:
        super().__init__()
        kernel = config.positional_kernel
        self.conv = Conv(config.width, config.width, kernel, padding=kernel // 2, groups=config.positional_groups)
        self.activation = ACTIVATIONS[config.conv_activation]

    def forward(self, x: Tensor) -> Tensor:
        """(1, length, width) → the same."""
        y = self.conv(x.transpose(1, 2))[:, :, : x.shape[1]]
        return self.activation(y).transpose(1, 2)


class Attention(nn.Module):
    """Every position sees all."""

    def __init__(self, config: HubertConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.queries = Linear(config.width, config.width)
        self.keys = Linear(config.width, config.width)
        self.values = Linear(config.width, config.width)
        self.output = Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """(1, length, width) → the same."""
        queries, keys, values = (self._heads(part(x)) for part in (self.queries, self.keys, self.values))
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        y: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return y

    def _heads(self, x: Tensor) -> Tensor:
        """(1, length, width) → (1, heads, length, head width)."""
        return x.view(1, x.shape[1], self.heads, -1).transpose(1, 2)


class Layer(nn.Module):
    """Attention and an MLP, each added to its input and normalised after."""

    def __init__(self, config: HubertConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.widen = Linear(config.width, config.hidden)
        self.narrow = Linear(config.hidden, config.width)
        self.mlp_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(self.attention(x).add_(x))
        y: Tensor = self.mlp_norm(self.narrow(self.activation(self.widen(x))).add_(x))
        return y


class Hubert(nn.Module):
    """Samples → features, (1, frames, width): the mean of what enters the first layer and what each layer gives."""

    def __init__(self, config: HubertConfig) -> None:
        super().__init__()
        self.config = config
        self.features = nn.ModuleList(
            Feature(config, index, normed=index == 0) for index in range(len(config.conv_dim))
        )
        dim = config.conv_dim[-1]
        self.projection_norm = nn.LayerNorm(dim, eps=config.epsilon) if config.projection_norm else None
        self.projection = Linear(dim, config.width)
        self.positions = Positions(config)
        self.norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        return [*self.features, self.projection, self.positions, *self.layers]

    def forward(self, samples: Tensor, check: Callable[[], None]) -> Tensor:
        """samples: float32 (1, length). `check` raises to cancel; it is called between layers."""
        x = samples[:, None]
        for feature in self.features:
            check()
            x = feature(x)
        x = x.transpose(1, 2)
        x = self.projection(x if self.projection_norm is None else self.projection_norm(x))
        x = self.norm(self.positions(x).add(x))
        total = x.clone()
        for layer in self.layers:
            check()
            x = layer(x)
            total += x
        mean: Tensor = total.div_(len(self.layers) + 1)
        return mean
