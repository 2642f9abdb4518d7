"""What the golden recordings of the audio tokenizer, of references and of postprocessing are made of."""

from __future__ import annotations

from typing import Any

CODECS: dict[str, dict[str, Any]] = {
    "plain": {
        "target_bandwidths": [0.3, 1.2],
        "codebook_size": 64,
        "codebook_dim": 8,
        "acoustic_model_config": {
            "model_type": "dac",
            "encoder_hidden_size": 2,
            "downsampling_ratios": [8, 5, 4, 2, 3],
            "decoder_hidden_size": 64,
            "upsampling_ratios": [8, 5, 4, 2, 3],
            "hidden_size": 16,
        },
        "semantic_model_config": {
            "model_type": "hubert",
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "intermediate_size": 32,
            "conv_dim": [12] * 7,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "mask_time_prob": 0.0,
        },
    },
    "varied": {
        "target_bandwidths": [3],
        "codebook_size": 40,
        "codebook_dim": 6,
        "block_dilations": [1, 3, 2],
        "channel_ratios": [2, 3, 1],
        "strides": [1, 2, 1],
        "kernel_size": 5,
        "unit_kernel_size": 5,
        "semantic_sample_rate": 12_000,
        "downsample_factor": 80,
        "acoustic_model_config": {
            "model_type": "dac",
            "encoder_hidden_size": 6,
            "downsampling_ratios": [4, 5, 8],
            "decoder_hidden_size": 40,
            "upsampling_ratios": [5, 8, 4],
            "hidden_size": 10,
        },
        "semantic_model_config": {
            "model_type": "hubert",
            "hidden_size": 10,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 28,
            "conv_dim": [8, 10, 14],
            "conv_kernel": [25, 16, 14],
            "conv_stride": [5, 4, 2],
            "conv_bias": True,
            "feat_proj_layer_norm": False,
            "hidden_act": "relu",
            "feat_extract_activation": "silu",
            "layer_norm_eps": 1e-3,
            "num_conv_pos_embeddings": 7,
            "num_conv_pos_embedding_groups": 5,
        },
    },
}
"""Configurations of upstream's class. plain: the official one, smaller. varied: everything that may differ does."""

ENCODED_SAMPLES = {"plain": (960, 1000, 1919, 1920, 48_000), "varied": (160, 480, 500, 8000, 32_000)}
DECODED_FRAMES = {"plain": (1, 2, 9, 60), "varied": (1, 3, 200)}

REFERENCES: list[dict[str, Any]] = [
    {"rate_hz": 24_000, "channels": 1, "length": 60_000, "longest": 20_000, "steps": 9000, "seed": 1},
    {"rate_hz": 44_100, "channels": 2, "length": 130_000, "longest": 30_000, "steps": 2500, "seed": 2},
    {"rate_hz": 48_000, "channels": 1, "length": 150_000, "longest": 40_000, "steps": 300, "seed": 3},
    {"rate_hz": 16_000, "channels": 3, "length": 50_000, "longest": 9000, "steps": 32_000, "seed": 4},
    {"rate_hz": 8000, "channels": 1, "length": 30_000, "longest": 9000, "steps": 5000, "seed": 5},
    {"rate_hz": 22_050, "channels": 1, "length": 25_001, "longest": 7000, "steps": 60_000, "seed": 6},
    {"rate_hz": 24_000, "channels": 1, "length": 1001, "longest": 4000, "steps": 9000, "seed": 8},
    {"rate_hz": 44_100, "channels": 2, "length": 90_000, "longest": 20_000, "steps": 700, "seed": 9, "plain": True},
    {"rate_hz": 24_000, "channels": 1, "length": 30_011, "longest": 9000, "steps": 40_000, "seed": 10, "plain": True},
]
"""Recordings, see `signals.bursts`. plain: without preprocessing."""

OUTPUTS: list[dict[str, Any]] = [
    {"frames": [90], "steps": 9000, "seed": 21, "rms": None},
    {"frames": [90], "steps": 9000, "seed": 22, "rms": 0.04},
    {"frames": [70], "steps": 50_000, "seed": 23, "rms": 0.3},
    {"frames": [70], "steps": 50_000, "seed": 24, "rms": 0.02, "postprocess_output": False},
    {"frames": [40, 50, 60], "steps": 9000, "seed": 25, "rms": None},
    {"frames": [40, 1, 2, 30], "steps": 9000, "seed": 26, "rms": 0.05},
    {"frames": [3, 1, 1], "steps": 9000, "seed": 27, "rms": None, "postprocess_output": False},
    {"frames": [1], "steps": 20_000, "seed": 28, "rms": None},
    {"frames": [50], "steps": 9000, "seed": 49, "rms": None, "pad_duration": 0.0, "fade_duration": 0.0},
    {"frames": [50], "steps": 9000, "seed": 30, "rms": 0.07, "pad_duration": 0.333, "fade_duration": 5.0},
    {"frames": [60], "steps": 20, "seed": 31, "rms": 0.07},
    {"frames": [60], "steps": 20, "seed": 31, "rms": None, "postprocess_output": False},
]
"""What the codec might have decoded, in chunks of frames, and how it is to be heard."""
LONGEST = 24_000
