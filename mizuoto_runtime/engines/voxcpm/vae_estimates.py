"""How much working memory the audio VAE takes, from how long its input is and its sizes.

The weights' own bytes aren't in it, nor those of copies that stream. Longer inputs are computed in tiles, so beyond
one tile only the result grows.
"""

from __future__ import annotations

import math

import torch

from . import vae_decoder, vae_encoder
from .vae_config import VaeConfig
from .vae_layers import DILATIONS, KERNEL, tile_elements

FLOAT_BYTES = 4
SAMPLED_LIVE = 4
"""Tensors of a strided or transposed convolution's input at once: itself, padded, and as windows, which overlap."""
TILE_LIVE = 5
"""Tensors of a small tile's size at once."""
OUTPUT_EXTRA = 2
"""Beside the last channels; what each tap of the last convolution gives is summed up at the end."""
CARRIED_ROWS = (KERNEL - 1) * sum(DILATIONS) + 16
"""Of each block's channels, between tiles."""
BASE_BYTES = 8 << 20


def decoder_bytes(
    config: VaeConfig, frames: int, device: torch.device, tile_frames: int = vae_decoder.TILE_FRAMES
) -> int:
    """Upper bound in bytes while `frames` frames are decoded on `device`."""
    widths, rates = config.decoder_widths, config.decoder_rates
    length, most = min(frames, tile_frames), 0.0
    for width, after, rate in zip(widths[: vae_decoder.APART], widths[1:], rates, strict=False):
        tile = _tile(length * rate, after, device)
        most = max(most, length * (SAMPLED_LIVE * width + rate * after), length * (width + rate * after) + tile)
        length *= rate
    apart = min(vae_decoder.APART, len(rates))
    widest = max(math.prod(rates[apart:end]) * widths[end] for end in range(apart, len(rates) + 1))
    widest = max(widest, math.prod(rates[apart:]) * (widths[-1] + OUTPUT_EXTRA))
    most = max(most, length * widths[apart] + _tile(length, widest, device))
    carried = CARRIED_ROWS * (config.latent_dim + sum(widths))
    return FLOAT_BYTES * math.ceil(most + carried + frames * config.output_hop) + BASE_BYTES


def encoder_bytes(
    config: VaeConfig, samples: int, device: torch.device, tile_frames: int = vae_encoder.TILE_FRAMES
) -> int:
    """Upper bound in bytes while `samples` samples are encoded on `device`."""
    widths, rates, frames = config.encoder_widths, config.encoder_rates, config.frames(samples)
    joined = max(0, len(rates) - vae_encoder.APART)
    length = min(frames, tile_frames) * config.input_hop
    sound = 2 * length
    widest = max(widths[end] / math.prod(rates[:end]) for end in range(joined + 1))
    length //= math.prod(rates[:joined])
    values = length * widths[joined]
    most = values + _tile(length * math.prod(rates[:joined]), widest, device)
    for width, after, rate in zip(widths[joined:], widths[joined + 1 :], rates[joined:], strict=False):
        most = max(most, length * width + _tile(length, width, device))
        most = max(most, length * width * SAMPLED_LIVE + length // rate * after)
        length //= rate
    most = max(most, length * widths[-1] * (vae_encoder.MEAN_KERNEL + 2))
    carried = CARRIED_ROWS * sum(widths)
    return FLOAT_BYTES * math.ceil(most + sound + carried + frames * config.latent_dim) + BASE_BYTES


def _tile(length: int, width: float, device: torch.device) -> float:
    """Values at once while `length` rows, each of so many values at its widest, are computed in small tiles."""
    return TILE_LIVE * min(length * width, max(tile_elements(device), width))
