"""A signal that is the same to the last bit wherever it is made."""

from __future__ import annotations

import torch
from torch import Tensor


def exact_signal(length: int) -> Tensor:
    """float32 (length) between −0.25 and 0.25: swept tones, made of whole numbers only."""
    steps = torch.arange(length, dtype=torch.int64)
    fast = (steps * steps // 97) % 256 - 128
    slow = (steps * 3) % 512 - 256
    return ((fast * 2 + slow.abs() - 128) % 1024 - 512).float() / 2048
