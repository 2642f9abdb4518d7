"""How much working memory a sentence takes, from its length and the voice's sizes."""

from __future__ import annotations

from .architecture import VitsConfig

BYTES_PER_VALUE = 4
LIVE_TENSORS = 5
BASE_BYTES = 16 << 20


def encoder_bytes(config: VitsConfig, symbols: int) -> int:
    """Upper bound in bytes while `symbols` symbols are encoded: two score matrices a head, and the widest layer."""
    scores = 2 * config.text.heads * symbols**2
    widest = LIVE_TENSORS * max(config.text.filter_channels, 2 * config.latent_channels) * symbols
    return BYTES_PER_VALUE * (scores + widest) + BASE_BYTES


def decoder_bytes(config: VitsConfig, frames: int) -> int:
    """Upper bound in bytes while `frames` latent frames are decoded: a few tensors of the generator's widest stage."""
    generator = config.generator
    length, widest = frames, generator.channels * frames
    for stage, rate in enumerate(generator.upsample_rates):
        length *= rate
        widest = max(widest, generator.stage_channels(stage) * length)
    return BYTES_PER_VALUE * LIVE_TENSORS * widest + BASE_BYTES
