"""How much working memory the codec takes, from what it is given and its sizes.

The weights' own bytes aren't in it, nor those of copies that stream.
"""

from __future__ import annotations

import itertools
import math

import torch

from ...nn.attention import FUSED
from .codec_config import CodecConfig, HubertConfig
from .codec_decoder import WHOLE, reach_rows, tile_frames
from .codec_encoder import SEMANTIC_EDGE, tile_samples

STAGE_LIVE = 3
"""Tensors of a residual unit's size at once."""
ATTENTION_LIVE = 8
MLP_LIVE = 4
SEMANTIC_LIVE = 5
SEARCH_LIVE = 3
SCORES_LIVE = 2
BASE_BYTES = 16 << 20
ELEMENT_BYTES = 4


def encoder_bytes(config: CodecConfig, samples: int, device: torch.device) -> int:
    """Upper bound in bytes while `samples` samples are encoded on `device`."""
    heard = samples * config.semantic_rate_hz // config.rate_hz + 2 * SEMANTIC_EDGE
    frames = samples // config.hop_length + 2
    widest = max(config.semantic.width, *config.semantic.widths) * max(1, *config.semantic.strides)
    semantic = SEMANTIC_LIVE * frames * widest
    search = frames * (SEARCH_LIVE * config.codebook_size + 4 * config.hidden)
    values = max(_hubert(config.hubert, heard, device), semantic, search, _acoustic(config, samples))
    return ELEMENT_BYTES * (values + frames * config.hidden + 2 * samples + heard) + BASE_BYTES


def _hubert(config: HubertConfig, heard: int, device: torch.device) -> int:
    lengths = [heard]
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        lengths.append(max(1, (lengths[-1] - kernel) // stride + 1))
    held = [length * dim for length, dim in zip(lengths, (1, *config.conv_dim), strict=True)]
    features = max(before + after for before, after in itertools.pairwise(held))
    layer = max(ATTENTION_LIVE * config.width, MLP_LIVE * config.width + 2 * config.hidden)
    scores = 0 if device.type in FUSED else SCORES_LIVE * config.heads * lengths[-1]
    return max(features, lengths[-1] * (config.conv_dim[-1] * 2 + layer + scores))


def _acoustic(config: CodecConfig, samples: int) -> int:
    channels, length = config.encoder_channels, samples
    tile = min(samples, tile_samples(config.encoder_channels))
    values = 0
    for stage, ratio in enumerate(config.downsampling):
        after = 2 * channels * (length // ratio + 1)
        values = max(values, STAGE_LIVE * channels * (length if stage else tile) + (after if stage else 2 * after))
        channels, length = 2 * channels, length // ratio + 1
    return values


def decoder_bytes(config: CodecConfig, frames: int, device: torch.device) -> int:
    """Upper bound in bytes while `frames` frames are decoded on `device`."""
    channels, rows = config.decoder_channels, frames
    values = frames * (3 * config.hidden + channels)
    tile = min(frames, tile_frames(config) + 2 * -(-reach_rows(config) // math.prod(config.upsampling[:WHOLE])))
    tiled = 0
    for stage, ratio in enumerate(config.upsampling):
        if stage == WHOLE and tile < frames:
            tiled, rows = rows * channels, tile * (rows // frames)
        values = max(values, tiled + rows * channels + STAGE_LIVE * rows * ratio * channels // 2)
        rows, channels = rows * ratio, channels // 2
    return ELEMENT_BYTES * (values + frames * config.hop_length) + BASE_BYTES
