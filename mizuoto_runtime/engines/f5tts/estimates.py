"""How much working memory sampling and decoding take, from their lengths and the model's sizes.

The weights' own bytes aren't in it, nor those of copies that stream.
"""

from __future__ import annotations

import torch

from ...nn.attention import FUSED, attention_bytes
from .config import Architecture
from .sampler import GROUP, Sampling
from .vocos import TILE_FRAMES, VocosConfig

BASE_BYTES = 32 << 20
VOCODER_LIVE = 4


def transformer_bytes(
    architecture: Architecture, rows: int, frames: int, how: Sampling, dtype: torch.dtype, device: torch.device
) -> int:
    """Upper bound in bytes while `rows` spectrograms of `frames` frames, references included, are sampled."""
    sizes = architecture
    positions = (2 if how.guided else 1) * rows * (frames + 1)
    skips = sizes.depth // 2 * sizes.dim if sizes.backbone == "UNetT" else 0
    rotated = sizes.inner if dtype.itemsize > 2 else 4 * sizes.inner
    attending = 2 * sizes.inner + max(rotated, 2 * sizes.inner)
    passing = sizes.dim + max(attending, 2 * sizes.mlp, 3 * sizes.dim)
    text = sizes.text_dim * (12 if sizes.conv_layers else 2)
    values = positions * max(3 * sizes.dim + skips + passing, text)
    values += min(how.evaluations, GROUP) * (6 * sizes.depth + 8) * sizes.dim + 10 * rows * frames * sizes.mel_dim
    pieces = attention_bytes(positions // (frames + 1), sizes.heads, frames + 1, sizes.dim_head, dtype, device)
    scores = 0 if device.type in FUSED else positions * (frames + 1) * sizes.heads
    return dtype.itemsize * values + 2 * 4 * scores + pieces + BASE_BYTES


def vocoder_bytes(config: VocosConfig, frames: int) -> int:
    """Upper bound in bytes while `frames` frames are decoded at once."""
    width = max(2 * config.inner + 2 * config.width, 5 * config.window)
    return 4 * frames * (width + VOCODER_LIVE * config.width) + BASE_BYTES


def tiled_vocoder_bytes(config: VocosConfig, frames: int) -> int:
    """The same, decoded in tiles."""
    tile = min(frames, TILE_FRAMES + 2 * config.reach_frames)
    return vocoder_bytes(config, tile) + 2 * 4 * frames * config.hop
