"""Codecs and speaker encoders of any size with random weights, built without a checkpoint."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from mizuoto_runtime.engines.qwen3tts.codec_config import (
    CodecConfig,
    SpeakerConfig,
    parse_codec_config,
    parse_speaker_config,
)

Module = TypeVar("Module", bound=nn.Module)


def codec_config(decoder: dict[str, object], encoder: dict[str, object], **root: object) -> CodecConfig:
    return parse_codec_config({"decoder_config": decoder, "encoder_config": encoder, **root}, source="test")


SMALL = codec_config(
    {
        "codebook_size": 256, "codebook_dim": 256, "latent_dim": 96, "hidden_size": 128, "intermediate_size": 128,
        "num_attention_heads": 4, "head_dim": 32, "num_hidden_layers": 3, "sliding_window": 8, "num_quantizers": 4,
        "upsample_rates": [3, 2, 2], "upsampling_ratios": [2], "decoder_dim": 192,
    },
    {
        "num_filters": 24, "hidden_size": 128, "upsampling_ratios": [3, 2, 2], "num_hidden_layers": 3,
        "intermediate_size": 256, "num_attention_heads": 4, "codebook_size": 256, "codebook_dim": 128,
        "vector_quantization_hidden_dimension": 128, "num_quantizers": 6,
    },
    encoder_valid_num_quantizers=4, decode_upsample_rate=24, encode_downsample_rate=24,
)
"""Small, but with weights that are large enough to stream."""

REAL = codec_config({"codebook_dim": 512, "head_dim": 64, "hidden_size": 512, "intermediate_size": 1024}, {})
SMALL_SPEAKER = parse_speaker_config(
    {
        "enc_dim": 128, "enc_channels": [128, 128, 128, 256], "enc_kernel_sizes": [5, 3, 3, 1],
        "enc_dilations": [1, 2, 3, 1],
    },
    source="test",
)
REAL_SPEAKER: SpeakerConfig = parse_speaker_config({"enc_dim": 2048}, source="test")


def with_random_weights(module: Module, dtype: torch.dtype = torch.float32) -> Module:
    """In place; no weight is neutral, none makes what it is multiplied with much larger."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in module.named_parameters():
        draw = torch.randn(weight.shape, generator=generator)
        if name.endswith("usage"):
            draw = draw.abs() + 0.5
        elif "sums" not in name and weight.ndim > 1:
            draw /= weight[0].numel() ** 0.5
        elif weight.ndim == 1:
            draw = 0.2 + 0.1 * draw
        weight.data = draw.to(dtype)
    return module.requires_grad_(False).eval()
