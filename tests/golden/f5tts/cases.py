"""What the recorder lets upstream do: tiny models of every kind, and what they are asked for."""

from __future__ import annotations

from typing import Any

COMMON = {"dim": 64, "depth": 4, "heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "v1": {
        "backbone": "DiT",
        "arch": {**COMMON, "depth": 3, "ff_mult": 2, "text_dim": 32, "text_mask_padding": True, "qk_norm": None,
                 "conv_layers": 2, "pe_attn_head": None, "attn_backend": "torch", "attn_mask_enabled": False,
                 "checkpoint_activations": False},
    },
    "base": {
        "backbone": "DiT",
        "arch": {**COMMON, "depth": 3, "ff_mult": 2, "text_dim": 32, "text_mask_padding": False, "conv_layers": 2,
                 "pe_attn_head": 1},
        "old_buffers": True,
        "suffix": ".pt",
    },
    "e2": {"backbone": "UNetT", "arch": {**COMMON, "ff_mult": 4, "text_mask_padding": False, "pe_attn_head": 1}},
    "varied-dit": {
        "backbone": "DiT",
        "arch": {"dim": 48, "depth": 2, "heads": 3, "dim_head": 24, "ff_mult": 3, "text_dim": 40, "conv_layers": 1,
                 "qk_norm": "rms_norm", "pe_attn_head": 2, "attn_mask_enabled": True, "long_skip_connection": True,
                 "text_embedding_average_upsampling": True},
        "mel_spec_type": "bigvgan",
    },
    "varied-unett": {
        "backbone": "UNetT",
        "arch": {"dim": 80, "depth": 2, "heads": 2, "dim_head": 32, "ff_mult": 1.5, "text_dim": 36, "conv_layers": 1,
                 "text_mask_padding": True, "qk_norm": "rms_norm", "attn_mask_enabled": True,
                 "skip_connect_type": "add"},
    },
}  # fmt: skip
VOCODER = {
    "feature_extractor": {
        "class_path": "vocos.feature_extractors.MelSpectrogramFeatures",
        "init_args": {"sample_rate": 24000, "n_fft": 1024, "hop_length": 256, "n_mels": 100, "padding": "center"},
    },
    "backbone": {
        "class_path": "vocos.models.VocosBackbone",
        "init_args": {"input_channels": 100, "dim": 64, "intermediate_dim": 96, "num_layers": 3},
    },
    "head": {
        "class_path": "vocos.heads.ISTFTHead",
        "init_args": {"dim": 64, "n_fft": 1024, "hop_length": 256, "padding": "center"},
    },
}
VOCABULARY = [
    " ", *"!\"'(),-.:?", *"0123456789", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *"abcdefghijklmnopqrstuvwxyz",
    "。", "，", "！", "ni3", "hao3", "shi4", "jie4", "lv4", "men", "é", "ü",
]  # fmt: skip
"""Tokens of the tiny models; others in the texts are unknown."""

HELLO = [*"Hello there.  The quick brown fox~ jumps."]
CHINESE = [" ", "ni3", " ", "hao3", "，", " ", "shi4", " ", "jie4", "。", *"ok", "☃"]
REFERENCE = {"length": 9_000, "seed": 11}
SAMPLES: list[dict[str, Any]] = [
    {"model": "v1", "rows": [{"tokens": HELLO, "sound": REFERENCE, "duration": 80}], "seed": 3, "steps": 4,
     "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
    {"model": "v1", "rows": [{"tokens": CHINESE, "sound": REFERENCE, "duration": 61}], "seed": 4, "steps": 5,
     "cfg_strength": 1.3, "sway_sampling_coef": -0.4},
    {"model": "v1", "rows": [{"tokens": HELLO, "sound": REFERENCE, "duration": 50}], "seed": 5, "steps": 3,
     "cfg_strength": 2.0, "sway_sampling_coef": None, "method": "midpoint"},
    {"model": "v1", "rows": [{"tokens": HELLO, "sound": REFERENCE, "duration": 10}], "seed": 6, "steps": 2,
     "cfg_strength": 0.0, "sway_sampling_coef": 0.5},
    {"model": "v1", "rows": [
        {"tokens": HELLO, "sound": REFERENCE, "duration": 90},
        {"tokens": CHINESE, "sound": {"length": 5_000, "seed": 12}, "duration": 44},
        {"tokens": HELLO[:9], "sound": {"length": 3_000, "seed": 13}, "duration": 30}],
     "seed": 7, "steps": 3, "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
    {"model": "v1", "rows": [{"tokens": HELLO, "sound": {"length": 20_000, "seed": 14}, "duration": 0}],
     "seed": 8, "steps": 7, "cfg_strength": 2.0, "sway_sampling_coef": -1.0,
     "edit": {"parts": [[0.1, 0.25], [0.5, 0.6]], "durations": [0.2, 0.05]}},
    {"model": "base", "rows": [{"tokens": HELLO, "sound": REFERENCE, "duration": 70}], "seed": 9, "steps": 4,
     "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
    {"model": "base", "rows": [
        {"tokens": HELLO, "sound": REFERENCE, "duration": 60},
        {"tokens": CHINESE, "sound": {"length": 5_000, "seed": 12}, "duration": 44}],
     "seed": 10, "steps": 2, "cfg_strength": 2.0, "sway_sampling_coef": -1.0, "method": "midpoint"},
    {"model": "e2", "rows": [{"tokens": HELLO, "sound": REFERENCE, "duration": 70}], "seed": 11, "steps": 4,
     "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
    {"model": "e2", "rows": [
        {"tokens": HELLO, "sound": REFERENCE, "duration": 66},
        {"tokens": CHINESE, "sound": {"length": 5_000, "seed": 12}, "duration": 44}],
     "seed": 12, "steps": 3, "cfg_strength": 1.0, "sway_sampling_coef": -1.0},
    {"model": "e2", "rows": [{"tokens": CHINESE, "sound": REFERENCE, "duration": 45}], "seed": 13, "steps": 6,
     "cfg_strength": 0.0, "sway_sampling_coef": -1.0, "method": "midpoint"},
    {"model": "varied-dit", "rows": [{"tokens": HELLO, "sound": REFERENCE, "duration": 73}], "seed": 14, "steps": 3,
     "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
    {"model": "varied-dit", "rows": [
        {"tokens": HELLO, "sound": REFERENCE, "duration": 66},
        {"tokens": CHINESE, "sound": {"length": 5_000, "seed": 12}, "duration": 44}],
     "seed": 15, "steps": 2, "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
    {"model": "varied-unett", "rows": [{"tokens": HELLO, "sound": REFERENCE, "duration": 73}], "seed": 16, "steps": 3,
     "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
    {"model": "varied-unett", "rows": [
        {"tokens": HELLO, "sound": REFERENCE, "duration": 66},
        {"tokens": CHINESE, "sound": {"length": 5_000, "seed": 12}, "duration": 44}],
     "seed": 17, "steps": 2, "cfg_strength": 2.0, "sway_sampling_coef": -1.0},
]  # fmt: skip
"""Calls of upstream's `CFM.sample`."""

SPOKEN = "I saw it. "
SPEECH: list[dict[str, Any]] = [
    {"model": "v1", "sound": {"length": 33_000, "seed": 21, "rate_hz": 44_100, "channels": 2, "gain": 0.25},
     "reference_text": SPOKEN, "chunks": ["We all went home again."], "seed": 1,
     "options": {"nfe_step": 3}},
    {"model": "v1", "sound": {"length": 15_000, "seed": 22, "rate_hz": 24_000, "channels": 1, "gain": 1.0},
     "reference_text": SPOKEN, "chunks": ["First we ate.", "Then, all of us slept.", "So it was."], "seed": 2,
     "options": {"nfe_step": 2, "speed": 1.4, "cross_fade_duration": 0.1}},
    {"model": "base", "sound": {"length": 15_000, "seed": 23, "rate_hz": 16_000, "channels": 1, "gain": 0.6},
     "reference_text": SPOKEN, "chunks": ["First we ate.", "And then we slept."], "seed": 3,
     "options": {"nfe_step": 2, "fix_duration": 2.2}},
    {"model": "e2", "sound": {"length": 15_000, "seed": 24, "rate_hz": 24_000, "channels": 1, "gain": 0.6},
     "reference_text": SPOKEN, "chunks": ["Yes."], "seed": 4,
     "options": {"nfe_step": 2, "cfg_strength": 1.0, "cross_fade_duration": 0.0}},
]  # fmt: skip
"""Calls of upstream's `infer_batch_process`: sound in, sound out."""

REQUESTS: list[dict[str, Any]] = [
    {"model": "v1", "sound": {"length": 60_000, "seed": 61, "rate_hz": 44_100, "channels": 2, "gain": 0.2},
     "reference_text": "It was so", "seed": 5, "options": {"nfe_step": 2, "speed": 1.1},
     "text": "你好，世界。Hello there; we met again! “So it was,” he said: 3 times, or more. And so on, and on, "
             "and on. Then they went home, all of them, and nobody spoke a word. It was late; the moon was up."},
    {"model": "e2", "sound": {"length": 40_000, "seed": 62, "rate_hz": 22_050, "channels": 1, "gain": 0.8},
     "reference_text": "你是谁。", "seed": 6, "options": {"nfe_step": 5}, "text": "我们 are friends。"},
]  # fmt: skip
"""Upstream from a recording's file to a waveform: `preprocess_ref_audio_text`, then `infer_process`."""
STRIDE = 8
"""Of such a waveform one sample in so many is recorded."""
