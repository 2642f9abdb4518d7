"""A small decoder of codes, with the layers that offloaders get wrong: both kinds of weight_norm, and an LSTM."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

WIDTH = 192
RATES = (8, 4, 5)
SAMPLES_PER_FRAME = 8 * 4 * 5
RATE_HZ = 8000


def old_weight_norm(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated in torch, but official checkpoints use it
        return nn.utils.weight_norm(module)


class Widen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = old_weight_norm(nn.Conv1d(WIDTH, WIDTH, 9, padding=4))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.elu(x + self.conv(x))


class Recur(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.lstm(x.transpose(1, 2))[0].transpose(1, 2)


class Upsample(nn.Module):
    def __init__(self, channels: int, out: int, rate: int) -> None:
        super().__init__()
        conv = nn.ConvTranspose1d(channels, out, 2 * rate, rate, padding=(rate + 1) // 2, output_padding=rate % 2)
        self.conv = nn.utils.parametrizations.weight_norm(conv)
        self.residual = nn.Conv1d(out, out, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.elu(self.conv(x))
        return x + self.residual(x)


class Decoder(nn.Module):
    """codes: (codebooks, frames) → (1, frames · SAMPLES_PER_FRAME) samples."""

    def __init__(self, codebooks: int, codes: int) -> None:
        super().__init__()
        self.codebooks = nn.ModuleList(nn.Embedding(codes, WIDTH) for _ in range(codebooks))
        self.stages = nn.Sequential(
            Widen(),
            Recur(),
            Upsample(WIDTH, 96, RATES[0]),
            Upsample(96, 48, RATES[1]),
            Upsample(48, 24, RATES[2]),
            nn.Conv1d(24, 1, 7, padding=3),
        )

    def forward(self, codes: Tensor) -> Tensor:
        pairs = zip(self.codebooks, codes, strict=True)
        embedded = torch.stack([nn.functional.embedding(row, book.weight) for book, row in pairs]).sum(0)
        samples: Tensor = torch.tanh(self.stages(embedded.T[None]))[0].float()
        return samples
