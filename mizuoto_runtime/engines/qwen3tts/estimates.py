"""How much working memory the talker takes, and how long a text may get."""

from __future__ import annotations

import torch

from ...lm.cache import CacheKind, peak_bytes, position_bytes
from .config import TalkerConfig

MIB = 1 << 20
FRAMES_PER_TOKEN = 4
"""About as many frames as a token is spoken in."""
MOST_FRAMES_PER_TOKEN = 16
MOST_FRAMES_BESIDES = 64


def most_tokens(text_ids: int, max_new_tokens: int) -> int:
    """Codes 0 after which a text of so many ids counts as running away."""
    return min(max_new_tokens, MOST_FRAMES_PER_TOKEN * text_ids + MOST_FRAMES_BESIDES)


def talker_bytes(config: TalkerConfig, prompt: int, new: int, kind: CacheKind, dtype: torch.dtype) -> int:
    """Upper bound in bytes while one sequence grows from `prompt` positions by `new`: its keys and values, the prompt's
    widest tensors, and logits."""
    decoder = config.decoder
    each = position_bytes(decoder.kv_heads, decoder.head_dim, dtype)
    widest = max(3 * decoder.inner, (2 * decoder.heads + 4 * decoder.kv_heads) * decoder.head_dim)
    passing = dtype.itemsize * prompt * (widest + 4 * decoder.width + 2 * config.text_width)
    choosing = 32 * (config.vocab + config.groups * config.predictor_vocab)
    return peak_bytes(each, decoder.layers, prompt + new, kind, 1) + passing + choosing + 16 * MIB
