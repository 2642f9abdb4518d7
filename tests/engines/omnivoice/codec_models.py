"""Audio tokenizers of any size with random weights, built without a checkpoint."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from mizuoto_runtime.engines.omnivoice.codec_config import CodecConfig, parse_codec_config

Module = TypeVar("Module", bound=nn.Module)
RATIOS = [8, 5, 4, 2, 3]


def codec_config(acoustic: dict[str, object], hubert: dict[str, object], **root: object) -> CodecConfig:
    ratios = {"downsampling_ratios": RATIOS, "upsampling_ratios": RATIOS}
    return parse_codec_config(
        {"acoustic_model_config": {**ratios, **acoustic}, "semantic_model_config": hubert, **root}, source="test"
    )


SMALL = codec_config(
    {"encoder_hidden_size": 8, "decoder_hidden_size": 256, "hidden_size": 64},
    {
        "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256,
        "conv_dim": [64] * 7, "num_conv_pos_embeddings": 32, "num_conv_pos_embedding_groups": 4,
    },
    target_bandwidths=[0.8], codebook_size=256, codebook_dim=32,
)  # fmt: skip
"""Small, but with weights that are large enough to stream."""

REAL = codec_config({}, {}, target_bandwidths=[0.5, 1, 1.5, 2])


def with_random_weights(module: Module) -> Module:
    """In place; no weight is neutral, none makes what it is multiplied with much larger."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in module.named_parameters():
        draw = torch.randn(weight.shape, generator=generator)
        if name.endswith("alpha"):
            draw = draw.abs() + 0.3
        elif "vectors" not in name and weight.ndim > 1:
            draw /= weight[0].numel() ** 0.5
        elif weight.ndim == 1:
            draw = 0.2 + 0.1 * draw
        weight.data = draw
    return module.requires_grad_(False).eval()
