"""Inputs that are the same to the last bit wherever they are made."""

from __future__ import annotations

import torch
from torch import Tensor


def exact_sound(length: int) -> Tensor:
    """float32 (length) between −0.25 and 0.25: swept tones, made of whole numbers only."""
    steps = torch.arange(length, dtype=torch.int64)
    fast = (steps * steps // 89) % 256 - 128
    slow = (steps * 5) % 512 - 256
    return ((fast * 2 + slow.abs() - 128) % 1024 - 512).float() / 2048


def exact_latents(frames: int, width: int) -> Tensor:
    """float32 (frames, width) between −2 and 2, made of whole numbers only."""
    steps = torch.arange(frames * width, dtype=torch.int64).reshape(frames, width)
    return ((steps * steps * 31 + steps * 17) % 509 - 254).float() / 127
