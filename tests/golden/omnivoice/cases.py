"""The golden models' configurations, and the cases that upstream was run for."""

from __future__ import annotations

from typing import Any

from mizuoto_runtime.engines.omnivoice.text import MARKS

WAVE_STRIDE = 7
"""Of a waveform every so many samples are recorded, which keeps the files small."""
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *MARKS)
TRAINING_TEXTS = (
    "The quick brown fox jumps over the lazy dog. Hello there, how are you today? hello hello the the None None",
    "male, female, child, teenager, young adult, low pitch, british accent, whisper [laughter] [sigh] en zh yue",
    "你好，今天天气很好。我们一起去公园散步吧。你好你好，世界。女，四川话，低音调。天气很好很好。",
)
CODES = 64
CODEC: dict[str, Any] = {
    "model_type": "higgs_audio_v2_tokenizer",
    "architectures": ["HiggsAudioV2TokenizerModel"],
    "acoustic_model_config": {
        "model_type": "dac",
        "encoder_hidden_size": 2,
        "decoder_hidden_size": 64,
        "hidden_size": 16,
        "downsampling_ratios": [8, 5, 4, 2, 3],
        "upsampling_ratios": [8, 5, 4, 2, 3],
        "codebook_size": CODES,
        "codebook_dim": 4,
        "n_codebooks": 2,
    },
    "semantic_model_config": {
        "model_type": "hubert",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "conv_dim": [8] * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "mask_time_prob": 0.0,
    },
    "codebook_size": CODES,
    "codebook_dim": 8,
    "target_bandwidths": [0.6, 1.2],
    "sample_rate": 24000,
    "semantic_sample_rate": 16000,
    "downsample_factor": 320,
    "strides": [1, 1],
    "channel_ratios": [1, 1],
    "block_dilations": [1, 1],
    "kernel_size": 3,
    "unit_kernel_size": 3,
}
PREPROCESSOR = {
    "feature_extractor_type": "DacFeatureExtractor",
    "feature_size": 1,
    "hop_length": 960,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 24000,
}
LLM: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 448,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "hidden_act": "silu",
    "attention_bias": False,
    "max_position_embeddings": 40960,
    "use_sliding_window": False,
}


def _model(seed: int, **llm: Any) -> dict[str, Any]:
    config = {
        "model_type": "omnivoice",
        "architectures": ["OmniVoice"],
        "audio_vocab_size": CODES + 1,
        "audio_mask_id": CODES,
        "num_audio_codebook": 8,
        "llm_config": LLM | llm,
    }
    return {"config": config, "seed": seed}


MODELS: dict[str, dict[str, Any]] = {
    "small": _model(100),
    "wide": _model(
        200, hidden_size=48, num_hidden_layers=2, num_key_value_heads=4, attention_bias=True, rms_norm_eps=1e-5
    ),
    "streamed": _model(
        300, hidden_size=192, intermediate_size=512, num_attention_heads=6, num_key_value_heads=2, head_dim=32
    ),
}
"""The last is too large to be recorded, but has units that stream."""

ENGLISH = "Hello there, how are you today?"
TAGGED = "Hello [laughter]the fox [sigh] over. [B EY1 S] it's 7 [Sigh]!"
CHINESE = " 你好， 今天 天气\n很好（真的）。hello  世界 [question-ah]"
LONG = (
    "The quick brown fox jumps over the lazy dog. Dr. Who, hello! How are you today? \"The fox.\" Hello there, "
    "how are you, the dog; no: e.g. over."
)
LONG_CHINESE = "你好，今天天气很好。我们一起去公园散步吧！你好你好，世界。天气很好很好。“散步吧。”好。"
SOUND = {"length": 21_000, "rate_hz": 24_000, "seed": 1, "gain": 0.9}
QUIET_STEREO = {"length": 26_000, "rate_hz": 44_100, "seed": 2, "gain": 0.1, "channels": 2}
FEW = {"num_step": 4}


def _case(model: str, text: str | list[str], options: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    return {"model": model, "inputs": {"text": text, **inputs}, "options": options}


CASES: list[dict[str, Any]] = [
    _case("small", ENGLISH, {}) | {"wave": True},
    _case("small", TAGGED, {"num_step": 8}, language="English", ref_audio=SOUND, ref_text="The lazy dog")
    | {"wave": True},
    _case(
        "small",
        CHINESE,
        {**FEW, "guidance_scale": 0.0},
        language="zh",
        ref_audio=QUIET_STEREO,
        ref_text="你好，世界",
    )
    | {"wave": True},
    _case(
        "small",
        ENGLISH,
        {"num_step": 16, "class_temperature": 1.0},
        instruct="Female, low pitch，british accent",
        speed=2.0,
    ),
    _case("small", CHINESE, {"num_step": 1, "position_temperature": 0.0}, instruct="whisper，male", duration=0.7),
    _case(
        "wide",
        ENGLISH,
        {**FEW, "class_temperature": 0.5, "position_temperature": 0.0},
        instruct="四川话,女",
        duration=1.0,
    ),
    _case(
        "wide",
        ENGLISH,
        {**FEW, "denoise": False, "preprocess_prompt": False, "postprocess_output": False, "pad_duration": 0.0},
        ref_audio=QUIET_STEREO,
        ref_text=" Hello there ",
        instruct="whisper",
        duration=0.6,
    )
    | {"wave": True},
    _case("wide", TAGGED, {"num_step": 7, "t_shift": 0.5, "layer_penalty_factor": 0.0}, language="Mandarin", speed=0.9),
    _case("wide", "Hi.", {"num_step": 32}, language="YUE", duration=0.08),
    _case("wide", "Ｈｉ ", {"num_step": 32, "guidance_scale": 3.5}, language="Cantonese", duration=0.05),
    _case(
        "small",
        [ENGLISH, CHINESE, "Hi [sigh]"],
        {**FEW, "class_temperature": 0.3},
        language=["en", "zh", None],
        instruct=["male", "male, 青年", None],
    ),
    _case(
        "wide",
        [ENGLISH, "Hi."],
        FEW,
        ref_audio=[SOUND, QUIET_STEREO],
        ref_text=["The lazy dog.", "hello"],
        duration=[0.5, None],
        speed=[1.0, 1.5],
    ),
    _case("small", LONG, {**FEW, "audio_chunk_threshold": 2.0, "audio_chunk_duration": 1.5}, instruct="male")
    | {"wave": True},
    _case(
        "wide",
        LONG_CHINESE,
        {"num_step": 3, "audio_chunk_threshold": 1.0, "audio_chunk_duration": 2.0, "class_temperature": 0.2},
        ref_audio=SOUND,
        ref_text="天气很好",
        speed=1.3,
    ),
    _case(
        "small",
        LONG,
        {"num_step": 2, "audio_chunk_threshold": 2.0, "audio_chunk_duration": 3.0},
        duration=6.0,
        language="english",
    ),
]
