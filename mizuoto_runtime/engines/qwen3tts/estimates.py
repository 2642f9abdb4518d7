"""How much working memory each phase takes, and how long a text may get."""

from __future__ import annotations

from ...lm.cache import CacheKind, peak_bytes, position_bytes
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


def talker_bytes(config: TalkerConfig, positions: int, kind: CacheKind, itemsize_of: object) -> int:
    """Upper bound in bytes while one sequence grows to `positions`, prompt included."""
    decoder = config.decoder
    each = position_bytes(decoder.kv_heads, decoder.head_dim, itemsize_of)  # type: ignore[arg-type]
    prefill = 4 * positions * (decoder.inner + 2 * decoder.width)
    return peak_bytes(each, decoder.layers, positions, kind, 1) + prefill + 64 * MIB


def encode_bytes(samples: int) -> int:
    """Upper bound in bytes while a recording of so many samples is encoded."""
    return ENCODE_BYTES_PER_SAMPLE * samples + 256 * MIB
