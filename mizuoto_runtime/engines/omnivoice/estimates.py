"""How much working memory the unmasking takes, from its lengths and the model's sizes.

The weights' own bytes aren't in it, nor those of copies that stream.
"""

from __future__ import annotations

import torch

from .config import OmniVoiceConfig
from .unmask import Prompt, Unmasking

BASE_BYTES = 16 << 20
FUSED = ("cpu", "cuda", "xpu")
"""Devices whose attention holds no scores of all positions with all."""


def unmasking_bytes(
    config: OmniVoiceConfig, prompt: Prompt, how: Unmasking, dtype: torch.dtype, device: torch.device
) -> int:
    """Upper bound in bytes while a prompt's frames are made."""
    decoder, frames = config.decoder, prompt.frames
    positions = prompt.positions + (frames if how.guided else 0)
    heads = decoder.heads * decoder.head_dim
    attending = 3 * heads + 4 * decoder.kv_heads * decoder.head_dim
    passing = 4 * decoder.width + max(attending + heads, 3 * decoder.inner)
    values = positions * passing + 2 * config.codebooks * frames * decoder.width
    rows = (2 if how.guided else 1) * config.codebooks * frames
    logits = 4 * rows * config.codes + dtype.itemsize * rows * (decoder.width + config.codes)
    choosing = 4 * frames * config.codes * (5 + (5 * config.codebooks if how.class_temperature > 0 else 0))
    scores = 0 if device.type in FUSED else 2 * 4 * decoder.heads * prompt.positions**2
    return dtype.itemsize * values + logits + choosing + scores + BASE_BYTES
