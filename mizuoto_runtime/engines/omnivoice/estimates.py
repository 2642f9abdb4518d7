"""How much working memory the unmasking takes, from its lengths and the model's sizes.

The weights' own bytes aren't in it, nor those of copies that stream.
"""

from __future__ import annotations

import torch

from ...nn.attention import FUSED
from .config import OmniVoiceConfig
from .unmask import Prompt, Unmasking

BASE_BYTES = 16 << 20
CHOOSING, CHANCE, NOISE = 6, 4, 4
"""Tensors over all codes that live at once: while one codebook's are chosen, more if by chance; while noise is made."""


def unmasking_bytes(
    config: OmniVoiceConfig, prompt: Prompt, how: Unmasking, dtype: torch.dtype, device: torch.device
) -> int:
    """Upper bound in bytes while a prompt's frames are made: the network at work, or the choice among its guesses."""
    decoder, frames = config.decoder, prompt.frames
    rows = 2 if how.guided else 1
    positions = prompt.positions + (rows - 1) * frames
    heads, kv_heads = decoder.heads * decoder.head_dim, decoder.kv_heads * decoder.head_dim
    attending = 4 * heads + 4 * kv_heads
    kept = positions * (2 * decoder.width + 2 * decoder.head_dim)
    passing = positions * (2 * decoder.width + max(attending, 3 * decoder.inner))
    embedding = config.codebooks * frames * decoder.width
    scores = 0 if device.type in FUSED else 2 * 4 * decoder.heads * prompt.positions**2
    network = dtype.itemsize * (kept + max(passing, embedding)) + scores

    chance = how.class_temperature > 0
    of_book = 4 * frames * config.codes
    of_all = config.codebooks * of_book
    logits = dtype.itemsize * rows * frames * (config.codebooks * config.codes + decoder.width)
    choosing = logits + (CHOOSING + CHANCE * chance) * of_book + chance * of_all
    noise = chance * NOISE * of_all
    return max(network, dtype.itemsize * kept + max(choosing, logits + noise)) + BASE_BYTES
