"""The speaker encoder: a mel spectrogram → an embedding of who speaks.

Arithmetic: ECAPA-TDNN (Desplanques et al., https://arxiv.org/abs/2005.07143). Upstream: qwen_tts/core/models of
qwen-tts 0.1.1, where the aggregation is a TDNN layer and statistics aren't normalised.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .codec_config import SpeakerConfig

POOLING_EPSILON = 1e-12


class Conv(nn.Conv1d):
    """Keeps the length; the edges are mirrored."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int = 1, *, dilation: int = 1) -> None:
        super().__init__(inputs, outputs, kernel_size, dilation=dilation)
        total = dilation * (kernel_size - 1)
        self.edges = (total // 2, total - total // 2)

    def reset_parameters(self) -> None:
        """Nothing: the weights are always loaded."""

    def forward(self, x: Tensor) -> Tensor:
        padded = functional.pad(x, self.edges, mode="reflect") if any(self.edges) else x
        return functional.conv1d(padded, self.weight, self.bias, dilation=self.dilation)


class Res2Net(nn.Module):
    """Groups of channels, each convolved together with the result of the group before; the first is kept."""

    def __init__(self, channels: int, scale: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.scale = scale
        self.convs = nn.ModuleList(
            Conv(channels // scale, channels // scale, kernel_size, dilation=dilation) for _ in range(scale - 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        groups = list(x.chunk(self.scale, dim=1))
        for index, conv in enumerate(self.convs, 1):
            group = groups[index] if index == 1 else groups[index] + groups[index - 1]
            groups[index] = functional.relu_(conv(group))
        return torch.cat(groups, dim=1)


class Block(nn.Module):
    """TDNN, Res2Net, TDNN, and gains by channel from the means over time; added to the input."""

    def __init__(self, config: SpeakerConfig, index: int) -> None:
        super().__init__()
        channels = config.channels[index]
        self.input = Conv(config.channels[index - 1], channels)
        self.res2net = Res2Net(channels, config.scale, config.kernels[index], config.dilations[index])
        self.output = Conv(channels, channels)
        self.squeeze = Conv(channels, config.squeeze)
        self.excite = Conv(config.squeeze, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu_(self.input(x))
        y = functional.relu_(self.output(self.res2net(y)))
        gains = functional.relu_(self.squeeze(y.mean(dim=2, keepdim=True)))
        return y * torch.sigmoid(self.excite(gains)) + x


class SpeakerEncoder(nn.Module):
    """mel → embedding, in the dtype of the weights."""

    def __init__(self, config: SpeakerConfig) -> None:
        super().__init__()
        self.config = config
        last = config.channels[-1]
        self.first = Conv(config.mel, config.channels[0], config.kernels[0], dilation=config.dilations[0])
        self.blocks = nn.ModuleList(Block(config, index) for index in range(1, len(config.channels) - 1))
        self.aggregate = Conv(last, last, config.kernels[-1], dilation=config.dilations[-1])
        self.attention_input = Conv(3 * last, config.attention)
        self.attention_output = Conv(config.attention, last)
        self.output = Conv(2 * last, config.width)

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        return [self.first, *self.blocks, self.aggregate, self.attention_input, self.attention_output, self.output]

    @property
    def least_frames(self) -> int:
        """Mel frames that mirroring the edges needs."""
        pairs = zip(self.config.kernels, self.config.dilations, strict=True)
        return max(dilation * (kernel - 1) - dilation * (kernel - 1) // 2 for kernel, dilation in pairs) + 1

    def forward(self, mel: Tensor) -> Tensor:
        """mel: float32 (frames, mel bands), `least_frames` at least → (width)."""
        x = functional.relu_(self.first(mel.to(self.output.weight.dtype).T[None]))
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        x = functional.relu_(self.aggregate(torch.cat(outputs, dim=1)))
        embedding: Tensor = self.output(self._pooled(x))[0, :, 0]
        return embedding

    def _pooled(self, x: Tensor) -> Tensor:
        """(1, channels, frames) → (1, 2 · channels, 1): means and deviations over time, weighted by attention."""
        frames = x.shape[2]
        uniform = x.new_ones(1, 1, frames) / frames
        mean, deviation = (each.expand(-1, -1, frames) for each in _statistics(x, uniform))
        scores = torch.tanh(functional.relu_(self.attention_input(torch.cat((x, mean, deviation), dim=1))))
        weights = torch.softmax(self.attention_output(scores), dim=2)
        return torch.cat(_statistics(x, weights), dim=1)


def _statistics(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean = (weights * x).sum(dim=2, keepdim=True)
    variance = (weights * (x - mean).square()).sum(dim=2, keepdim=True)
    return mean, variance.clamp(min=POOLING_EPSILON).sqrt()
