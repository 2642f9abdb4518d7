"""How much working memory the codec and the speaker encoder take, from what they are given and their sizes.

The weights' own bytes aren't in it, nor those of copies that stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch

from ...audio.mel import HOP
from .codec_decoder import CHUNK_FRAMES, CONTEXT_FRAMES, CodecDecoder
from .codec_encoder import JOINED, CodecEncoder, tile_samples
from .codec_vocoder import Stage
from .speaker_encoder import SpeakerEncoder

CONVNEXT_LIVE = 13
"""Tensors of a ConvNeXt block's width at once: four times as wide before and after its activation, and its edges."""
TILE_LIVE = 5
"""Tensors of a tile's size at once: a residual unit's, and an upsampling's, whose windows overlap."""
ENCODER_LIVE = 3
ATTENTION_LIVE = 8
MLP_LIVE = 5
SPEAKER_LIVE = 6
BASE_BYTES = 16 << 20


def decoder_bytes(decoder: CodecDecoder, frames: int, device: torch.device) -> int:
    """Upper bound in bytes while `frames` frames are decoded on `device`: what a chunk takes, and all samples."""
    config = decoder.config
    length = min(frames, CHUNK_FRAMES + CONTEXT_FRAMES) * math.prod(config.upsampling_ratios)
    values = CONVNEXT_LIVE * length * config.latent
    width = config.channels
    for stage in cast("Iterable[Stage]", decoder.vocoder.stages):
        tile_length = stage.tile_length(device)
        tile = min(length, tile_length) * stage.widest
        whole = length * width + (length * stage.rate * stage.channels if length > tile_length else 0)
        values = max(values, whole + TILE_LIVE * tile)
        length, width = length * stage.rate, stage.channels
    element_bytes = decoder.output.weight.dtype.itemsize
    return element_bytes * values + 4 * (frames * config.hop_length + length) + BASE_BYTES


def encoder_bytes(encoder: CodecEncoder, samples: int, device: torch.device) -> int:
    """Upper bound in bytes while `samples` samples are encoded on `device`."""
    config = encoder.config
    tile = min(samples, tile_samples(device)) * config.filters * ENCODER_LIVE
    length, width = samples / math.prod(config.ratios[:JOINED]), config.filters << min(JOINED, len(config.ratios))
    values = tile + length * width
    for ratio in config.ratios[JOINED:]:
        values = max(values, ENCODER_LIVE * length * width)
        length, width = length / ratio, 2 * width
    transformer = config.transformer
    attention, mlp = ATTENTION_LIVE * transformer.width, MLP_LIVE * transformer.width + 2 * transformer.hidden
    values = max(values, 2 * length * width, length * max(attention, mlp))
    searched_bytes = 4 * config.codebook_size * (length / 2 + 3 * config.codebook_dim)
    return math.ceil(max(encoder.output.weight.dtype.itemsize * (samples + values), searched_bytes)) + BASE_BYTES


def speaker_bytes(encoder: SpeakerEncoder, samples: int) -> int:
    """Upper bound in bytes while the speaker of `samples` samples is embedded."""
    values = SPEAKER_LIVE * (samples // HOP) * max(encoder.config.channels)
    return encoder.output.weight.dtype.itemsize * values + BASE_BYTES
