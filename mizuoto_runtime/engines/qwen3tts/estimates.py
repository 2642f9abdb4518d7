"""How much working memory each phase takes, and how long a text may get."""

from __future__ import annotations

import torch

from ...lm.cache import CacheKind, peak_bytes, position_bytes
from .codec_config import DecoderConfig
from .codec_decoder import CHUNK_FRAMES, CONTEXT_FRAMES
from .config import TalkerConfig

MIB = 1 << 20
FRAMES_PER_TOKEN = 4
"""About as many frames as a token is spoken in."""
MOST_FRAMES_PER_TOKEN = 16
MOST_FRAMES_BESIDES = 64
ENCODE_BYTES_PER_SAMPLE = 1024


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


def encode_bytes(samples: int) -> int:
    """Upper bound in bytes while a recording of so many samples is encoded."""
    return ENCODE_BYTES_PER_SAMPLE * samples + 256 * MIB


def decode_bytes(config: DecoderConfig, frames: int) -> int:
    """Upper bound in bytes while so many frames are decoded: chunks are, one after another."""
    chunk = min(frames, CHUNK_FRAMES + CONTEXT_FRAMES)
    return 4 * frames * config.hop_length + 8 * chunk * config.hop_length * 96 + 128 * MIB
