"""Sounds that are the same to the last bit wherever they are made."""

from __future__ import annotations

import torch
from torch import Tensor

QUIET_STEPS = 24
"""A pause isn't all silent."""


def tones(length: int) -> Tensor:
    """float32 (length) between −0.25 and 0.25: swept tones, made of whole numbers only."""
    steps = torch.arange(length, dtype=torch.int64)
    fast = (steps * steps // 89) % 256 - 128
    slow = (steps * 5) % 512 - 256
    return ((fast * 2 + slow.abs() - 128) % 1024 - 512).float() / 2048


def bursts(length: int, longest: int, steps: int, seed: int, channels: int = 1) -> Tensor:
    """float32 (channels, length): noise of up to `steps` / 2^15, in bursts of up to `longest` samples, with pauses."""
    generator = torch.Generator().manual_seed(seed)
    pieces: list[Tensor] = []
    left = length
    while left > 0:
        count = min(left, int(torch.randint(1, longest, (1,), generator=generator)))
        pause = int(torch.randint(3, (1,), generator=generator)) == 0
        most = 8 * (QUIET_STEPS if pause else steps)
        pieces.append(torch.randint(-most, most + 1, (channels, count), generator=generator))
        left -= count
    return torch.cat(pieces, dim=1).float() / (1 << 18)
