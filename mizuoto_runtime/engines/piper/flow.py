"""The flow of VITS, run backwards: latents as the text predicts them → latents as the generator knows them.

Arithmetic: VITS, section 2.1.2; the WaveNet is conditioned on the speaker as in appendix B.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .architecture import FlowConfig
from .layers import Conv


class GatedLayer(nn.Module):
    """A dilated convolution with tanh × sigmoid, and a pointwise one that gives what to add and what to pass on."""

    def __init__(self, config: FlowConfig, dilation: int, *, last: bool) -> None:
        super().__init__()
        channels = config.channels
        self.dilated = Conv(channels, 2 * channels, config.kernel_size, dilation=dilation)
        self.pointwise = Conv(channels, channels if last else 2 * channels)

    def forward(self, x: Tensor, speaker: Tensor | None) -> Tensor:
        gates = self.dilated(x)
        if speaker is not None:
            gates += speaker
        content, gate = gates.chunk(2, dim=1)
        output: Tensor = self.pointwise(content.tanh_().mul_(gate.sigmoid_()))
        return output


class Coupling(nn.Module):
    """The inverse of a mean-only affine coupling: the first half of the channels says what to take off the second."""

    def __init__(self, latent_channels: int, speaker_channels: int, config: FlowConfig) -> None:
        super().__init__()
        half, layers = latent_channels // 2, len(config.dilations)
        self.input = Conv(half, config.channels)
        self.layers = nn.ModuleList(
            GatedLayer(config, dilation, last=index == layers - 1) for index, dilation in enumerate(config.dilations)
        )
        self.speaker = Conv(speaker_channels, 2 * config.channels * layers) if speaker_channels else None
        self.output = Conv(config.channels, half)

    def forward(self, z: Tensor, speaker: Tensor | None, check: Callable[[], None]) -> Tensor:
        """z: (1, latent channels, 1, frames). speaker: (1, speaker channels, 1, 1)."""
        fixed, moved = z.chunk(2, dim=1)
        x = self.input(fixed)
        speakers = self.speaker(speaker).chunk(len(self.layers), dim=1) if self.speaker is not None else ()
        total: Tensor | None = None
        for index, layer in enumerate(self.layers):
            check()
            y = layer(x, speakers[index] if speakers else None)
            if y.shape[1] != x.shape[1]:
                added, y = y.chunk(2, dim=1)
                x = x + added
            total = y if total is None else total.add_(y)
        return torch.cat([fixed, moved - self.output(total)], dim=1)


class Flow(nn.Module):
    """All couplings in the order in which the inverse runs; before each the channels are reversed."""

    def __init__(self, latent_channels: int, speaker_channels: int, config: FlowConfig) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(latent_channels, speaker_channels, config) for _ in range(config.flows))

    def forward(self, z: Tensor, speaker: Tensor | None, check: Callable[[], None]) -> Tensor:
        """z: (1, latent channels, 1, frames), also returned. `check` raises to cancel; called before each layer."""
        for coupling in self.couplings:
            z = coupling(z.flip(1), speaker, check)
        return z
