"""How much working memory the language models take, with local encoder and DiT; `vae_estimates.py` has the VAE's."""

from __future__ import annotations

import torch

from ...lm.cache import CacheKind, peak_bytes, position_bytes
from ...lm.decoder import DecoderConfig
from ...nn.attention import FUSED
from .config import VoxCpmConfig
from .network import PATCHES_AT_ONCE

ROTATED_BYTES = 4
"""Of each value of a query while it is rotated, in float32."""
SCORES_LIVE, SCORE_BYTES = 2, 4
BASE_BYTES = 16 << 20


def model_bytes(
    config: VoxCpmConfig, prompt: int, new: int, kind: CacheKind, dtype: torch.dtype, device: torch.device
) -> int:
    """Upper bound in bytes while one sequence grows from `prompt` positions by `new`: its keys and values, and what the
    prompt's widest layer holds at once."""
    lm = config.lm
    each = position_bytes(lm.kv_heads, lm.head_dim, dtype)
    positions = prompt + new
    held = peak_bytes(each, lm.layers + config.residual.layers, positions, kind, 1, first_positions=positions)
    beside = prompt * dtype.itemsize * 5 * lm.width
    rows = min(prompt, PATCHES_AT_ONCE) * (config.patch + 1)
    scores = 0 if device.type in FUSED else SCORES_LIVE * SCORE_BYTES * lm.heads * prompt**2
    reading = max(_layer_bytes(lm, prompt, dtype) + scores, _layer_bytes(config.encoder, rows, dtype))
    step = _layer_bytes(config.dit, 2 * config.dit_positions, dtype)
    return held + beside + max(reading, step) + BASE_BYTES


def _layer_bytes(decoder: DecoderConfig, positions: int, dtype: torch.dtype) -> int:
    """What a layer holds at once for so many new positions."""
    queries, keys = decoder.heads * decoder.head_dim, decoder.kv_heads * decoder.head_dim
    rotating = 3 * ROTATED_BYTES * (queries + keys) if dtype.itemsize < ROTATED_BYTES else 3 * queries * dtype.itemsize
    attending = dtype.itemsize * (3 * queries + 4 * keys) + rotating
    widest = max(attending, dtype.itemsize * 3 * decoder.inner)
    return positions * (widest + dtype.itemsize * 4 * decoder.width)
