"""How much working memory the codec takes, from what it is given and its sizes.

The weights' own bytes aren't in it, nor those of copies that stream.
"""

from __future__ import annotations

import torch

from .codec_config import CodecConfig

BASE_BYTES = 16 << 20
ENCODER_LIVE = 4
DECODER_LIVE = 4


def encoder_bytes(config: CodecConfig, samples: int, device: torch.device) -> int:
    """Upper bound in bytes while `samples` samples are encoded on `device`."""
    return 4 * samples * ENCODER_LIVE * config.encoder_channels + BASE_BYTES


def decoder_bytes(config: CodecConfig, frames: int, device: torch.device) -> int:
    """Upper bound in bytes while `frames` frames are decoded on `device`."""
    width, values = config.decoder_channels, 0
    length = frames
    for ratio in config.upsampling:
        length, width = length * ratio, width // 2
        values = max(values, length * width)
    return 4 * DECODER_LIVE * values + BASE_BYTES
