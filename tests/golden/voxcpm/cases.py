"""The golden models' configurations, and the requests that upstream was run for."""

from __future__ import annotations

from typing import Any

TRAINING_TEXTS = (
    "The quick brown fox jumps over the lazy dog. Hello there, how are you today? It was late; the moon was up.",
    "Speak slowly and warmly, like a storyteller by the fire. A calm, deep voice. hello hello the the there there",
    "今天天气很好。今天 今天 我们一起去公园散步吧。你好你好，世界。温柔的声音 天气很好很好。我们 我们 我们 世界 世界",
)
AUDIO_TOKENS = (
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_prompt_start|>",
    "<|audio_prompt_end|>",
    "<|background|>",
    "<|/background|>",
    "<|characters|>",
    "<|/characters|>",
)
FIRST_AUDIO_TOKEN = 101
VOCAB = 720

_LM: dict[str, Any] = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 48,
    "intermediate_size": 80,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "longrope",
        "long_factor": [1.0, 1.25, 1.5, 2.0, 3.0, 4.0],
        "short_factor": [1.0, 1.0625, 1.125, 1.25, 1.5, 2.0],
        "original_max_position_embeddings": 512,
    },
    "vocab_size": VOCAB,
    "use_mup": False,
    "scale_emb": 12,
    "dim_model_base": 256,
    "scale_depth": 1.4,
}
_CFM = {
    "sigma_min": 1e-6,
    "solver": "euler",
    "t_scheduler": "log-norm",
    "training_cfg_rate": 0.1,
    "inference_cfg_rate": 2.0,
}
_WIDE: dict[str, Any] = {
    "long_factor": [1.0, 1.125, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0],
    "short_factor": [1.0, 1.0625, 1.125, 1.25, 1.5, 2.0, 2.5, 3.0],
}

CONFIGS: dict[str, dict[str, Any]] = {
    "v0.5": {
        "lm_config": {**_LM, "rope_scaling": {**_LM["rope_scaling"]}},
        "patch_size": 2,
        "feat_dim": 8,
        "residual_lm_num_layers": 2,
        "scalar_quantization_latent_dim": 12,
        "scalar_quantization_scale": 9,
        "encoder_config": {"hidden_dim": 48, "ffn_dim": 64, "num_heads": 4, "num_layers": 2},
        "dit_config": {"hidden_dim": 48, "ffn_dim": 64, "num_heads": 4, "num_layers": 2, "cfm_config": _CFM},
        "audio_vae_config": {
            "encoder_dim": 4,
            "encoder_rates": [2, 5],
            "latent_dim": 8,
            "decoder_dim": 16,
            "decoder_rates": [5, 2],
            "sample_rate": 16000,
        },
        "max_length": 256,
        "device": "cuda",
        "dtype": "float32",
    },
    "v1.5": {
        "architecture": "voxcpm",
        "lm_config": {
            **_LM,
            "max_position_embeddings": 1024,
            "kv_channels": 16,
            "use_mup": True,
            "rope_scaling": {**_LM["rope_scaling"], **_WIDE},
        },
        "patch_size": 4,
        "feat_dim": 8,
        "residual_lm_num_layers": 2,
        "scalar_quantization_latent_dim": 12,
        "scalar_quantization_scale": 9,
        "encoder_config": {"hidden_dim": 64, "ffn_dim": 64, "num_heads": 4, "num_layers": 2, "kv_channels": 16},
        "dit_config": {
            "hidden_dim": 32,
            "ffn_dim": 64,
            "num_heads": 2,
            "num_layers": 3,
            "kv_channels": 16,
            "cfm_config": _CFM,
        },
        "audio_vae_config": {
            "encoder_dim": 4,
            "encoder_rates": [2, 3],
            "latent_dim": 8,
            "decoder_dim": 16,
            "decoder_rates": [3, 2],
            "sample_rate": 44100,
        },
        "dit_mean_mode": False,
        "max_length": 256,
        "device": "cuda",
        "dtype": "float32",
    },
    "v2": {
        "architecture": "voxcpm2",
        "lm_config": {**_LM, "kv_channels": 16, "rope_scaling": {**_LM["rope_scaling"], **_WIDE}},
        "patch_size": 4,
        "feat_dim": 8,
        "residual_lm_num_layers": 2,
        "residual_lm_no_rope": True,
        "scalar_quantization_latent_dim": 12,
        "scalar_quantization_scale": 9,
        "encoder_config": {"hidden_dim": 32, "ffn_dim": 64, "num_heads": 4, "num_layers": 2, "kv_channels": 16},
        "dit_config": {
            "hidden_dim": 32,
            "ffn_dim": 64,
            "num_heads": 4,
            "num_layers": 3,
            "kv_channels": 16,
            "mean_mode": True,
            "cfm_config": _CFM,
        },
        "audio_vae_config": {
            "encoder_dim": 4,
            "encoder_rates": [2, 2],
            "latent_dim": 8,
            "decoder_dim": 16,
            "decoder_rates": [3, 2, 2],
            "sample_rate": 16000,
            "out_sample_rate": 48000,
        },
        "max_length": 256,
        "device": "cuda",
        "dtype": "float32",
    },
    "v2-varied": {
        "architecture": "voxcpm2",
        "lm_config": {**_LM, "use_mup": True, "scale_emb": 4, "num_key_value_heads": 4},
        "patch_size": 3,
        "feat_dim": 8,
        "residual_lm_num_layers": 1,
        "scalar_quantization_latent_dim": 10,
        "scalar_quantization_scale": 5,
        "encoder_config": {"hidden_dim": 48, "ffn_dim": 56, "num_heads": 4, "num_layers": 1},
        "dit_config": {
            "hidden_dim": 48,
            "ffn_dim": 72,
            "num_heads": 4,
            "num_layers": 2,
            "dit_mean_mode": True,
            "cfm_config": {},
        },
        "audio_vae_config": {
            "encoder_dim": 4,
            "encoder_rates": [2, 2],
            "latent_dim": 8,
            "decoder_dim": 16,
            "decoder_rates": [2, 2],
            "sample_rate": 16000,
            "out_sample_rate": 16000,
            "sr_bin_boundaries": None,
        },
        "dtype": "float32",
    },
}
FILES: dict[str, dict[str, Any]] = {
    "v0.5": {"weights": "pytorch_model.bin", "vae": "audiovae.pth", "wrapped": True},
    "v1.5": {"weights": "model.safetensors", "vae": "audiovae.pth", "wrapped": False},
    "v2": {"weights": "model.safetensors", "vae": "audiovae.safetensors", "wrapped": False},
    "v2-varied": {"weights": "pytorch_model.bin", "vae": "audiovae.pth", "wrapped": False, "legacy": True},
}
"""How each model lies in its folder. legacy: what its tokenizer says of itself."""

PROMPT = {"length": 900, "seed": 5, "rate_hz": 16_000}
PROMPT_TEXT = "It was late."
REFERENCE = {"length": 610, "seed": 26, "rate_hz": 16_000}
HELLO = "Hello there, how are you today?"
CASES: list[dict[str, Any]] = [
    {"model": "v0.5", "text": HELLO, "max_len": 9, "min_len": 50},
    {"model": "v0.5", "text": "今天天气很好，我们 go！", "cfg_value": 1.0, "inference_timesteps": 4, "max_len": 8},
    {"model": "v0.5", "text": "ok", "cfg_value": 3.0, "inference_timesteps": 1, "max_len": 40},
    {"model": "v0.5", "text": HELLO, "prompt": PROMPT, "prompt_text": PROMPT_TEXT, "max_len": 7},
    {"model": "v0.5", "text": "你好 世界", "prompt": {"length": 333, "seed": 8, "rate_hz": 8_000, "channels": 2},
     "prompt_text": "我们一起", "max_len": 6, "inference_timesteps": 60, "cfg_value": 1.7},
    {"model": "v0.5", "text": "one patch", "prompt": {"length": 15, "seed": 9, "rate_hz": 16_000},
     "prompt_text": "A", "max_len": 5},
    {"model": "v1.5", "text": "  The moon\n\n was   up. ", "max_len": 9},
    {"model": "v1.5", "text": "今天, 世界。", "cfg_value": 1.5, "inference_timesteps": 4, "min_len": 0, "max_len": 30},
    {"model": "v1.5", "text": HELLO, "prompt": {"length": 700, "seed": 10, "rate_hz": 44_100},
     "prompt_text": "你好，", "max_len": 7, "cfg_value": 3.0},
    {"model": "v1.5", "text": "hello", "prompt": {"length": 400, "seed": 11, "rate_hz": 22_050},
     "prompt_text": "warm ", "max_len": 6, "inference_timesteps": 4},
    {"model": "v2", "text": HELLO, "max_len": 9, "min_len": 50},
    {"model": "v2", "text": "今天天气很好。", "control": "a calm, deep voice ", "cfg_value": 1.0, "max_len": 7},
    {"model": "v2", "text": "go", "inference_timesteps": 1, "max_len": 30, "cfg_value": 2.5},
    {"model": "v2", "text": HELLO, "prompt": {"length": 801, "seed": 17, "rate_hz": 16_000},
     "prompt_text": PROMPT_TEXT, "max_len": 7, "min_len": 8},
    {"model": "v2", "text": "世界 世界", "reference": REFERENCE, "max_len": 7, "cfg_value": 3.0},
    {"model": "v2", "text": "storyteller", "reference": REFERENCE, "control": "slowly", "max_len": 6,
     "inference_timesteps": 4},
    {"model": "v2", "text": HELLO, "reference": {"length": 900, "seed": 14, "rate_hz": 48_000},
     "prompt": {"length": 500, "seed": 15, "rate_hz": 22_050, "channels": 2}, "prompt_text": "今天", "max_len": 7},
    {"model": "v2", "text": "up", "reference": REFERENCE, "prompt": {"length": 20, "seed": 16, "rate_hz": 16_000},
     "prompt_text": "It", "max_len": 6, "min_len": 0},
    {"model": "v2-varied", "text": "It was late; the moon was up. 你好", "max_len": 9},
    {"model": "v2-varied", "text": "<|audio_end|> fire <|background|>😀", "max_len": 7, "inference_timesteps": 5},
    {"model": "v2-varied", "text": HELLO, "prompt": PROMPT, "prompt_text": PROMPT_TEXT, "max_len": 7},
    {"model": "v0.5", "text": "go", "retry_badcase": True, "retry_badcase_ratio_threshold": 1.0,
     "retry_badcase_max_times": 3, "max_len": 20, "inference_timesteps": 4},
    {"model": "v2", "text": "go", "retry_badcase": True, "retry_badcase_ratio_threshold": 2.5,
     "retry_badcase_max_times": 2, "max_len": 60, "inference_timesteps": 2, "min_len": 9},
]  # fmt: skip
"""What upstream's `VoxCPM.generate` is asked for; `control` goes before the text as upstream's command line does it."""

TEXTS = (
    HELLO,
    " leading space",
    "trailing space ",
    "two  spaces\tand a tab",
    "今天天气很好。",
    " 今天",
    "a今天 世界我们",
    "它不在词表里",
    "emoji 😀 and é",
    "<|audio_start|>text after a token",
    "before <|background|> between <|/background|> after",
    "(a calm voice)今天",
    "<s>bos</s>",
    "▁▁今天",
    "<unk>x",
    "",
)
"""Texts of which the ids alone are recorded."""
