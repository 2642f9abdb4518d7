"""The golden models' configurations, and the cases that upstream was run for."""

from __future__ import annotations

from typing import Any

SPECIAL_TOKENS = (
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<tts_pad>", True),
    ("<tts_text_bos>", True),
    ("<tts_text_eod>", True),
    ("<|audio_start|>", False),
)
TRAINING_TEXTS = (
    "assistant user assistant user The quick brown fox jumps over the lazy dog. Hello there, how are you today?",
    "Speak slowly and warmly, like a storyteller by the fire. A calm, deep voice of an old man. hello hello the the",
    "你好，今天天气很好。我们一起去公园散步吧。你好你好，世界。请用温柔的声音说话。天气很好很好。",
)
PREPROCESSOR = {
    "chunk_length_s": None,
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "overlap": None,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 24000,
}
CODES = 128
CODEC: dict[str, Any] = {
    "model_type": "qwen3_tts_tokenizer_12hz",
    "architectures": ["Qwen3TTSTokenizerV2Model"],
    "encoder_valid_num_quantizers": 16,
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
    "decode_upsample_rate": 1920,
    "encode_downsample_rate": 1920,
    "encoder_config": {
        "audio_channels": 1,
        "codebook_dim": 8,
        "codebook_size": CODES,
        "compress": 2,
        "dilation_growth_rate": 2,
        "frame_rate": 12.5,
        "head_dim": 4,
        "hidden_size": 16,
        "intermediate_size": 24,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "num_attention_heads": 4,
        "num_filters": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "num_quantizers": 18,
        "num_residual_layers": 1,
        "num_semantic_quantizers": 1,
        "residual_kernel_size": 3,
        "sampling_rate": 24000,
        "sliding_window": 250,
        "upsample_groups": 16,
        "upsampling_ratios": [8, 6, 5, 4],
        "use_cache": False,
        "vector_quantization_hidden_dimension": 8,
    },
    "decoder_config": {
        "codebook_dim": 16,
        "codebook_size": CODES,
        "decoder_dim": 32,
        "head_dim": 4,
        "hidden_size": 16,
        "intermediate_size": 24,
        "latent_dim": 16,
        "layer_scale_initial_scale": 0.01,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "num_quantizers": 16,
        "num_semantic_quantizers": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "semantic_codebook_size": CODES,
        "sliding_window": 6,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "vector_quantization_hidden_dimension": 16,
    },
}
CODECS: dict[str, dict[str, Any]] = {
    "small": CODEC,
    "large": {
        **CODEC,
        "encoder_config": {
            **CODEC["encoder_config"],
            "hidden_size": 96,
            "intermediate_size": 192,
            "head_dim": 24,
            "num_filters": 6,
            "upsample_groups": 96,
        },
        "decoder_config": {
            **CODEC["decoder_config"],
            "decoder_dim": 128,
            "head_dim": 24,
            "hidden_size": 96,
            "intermediate_size": 192,
            "latent_dim": 96,
        },
    },
}
PREDICTOR: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "num_code_groups": 16,
    "vocab_size": CODES,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "hidden_act": "silu",
    "attention_bias": False,
    "use_sliding_window": False,
    "max_position_embeddings": 65536,
}
TALKER: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 56,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 3,
    "num_code_groups": 16,
    "text_hidden_size": 20,
    "text_vocab_size": 448,
    "vocab_size": 1024 + CODES,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "rope_scaling": {"interleaved": True, "mrope_section": [2, 1, 1], "rope_type": "default", "type": "default"},
    "hidden_act": "silu",
    "attention_bias": False,
    "use_sliding_window": False,
    "max_position_embeddings": 32768,
    "codec_pad_id": CODES + 100,
    "codec_bos_id": CODES + 101,
    "codec_eos_token_id": CODES + 102,
    "codec_think_id": CODES + 106,
    "codec_nothink_id": CODES + 107,
    "codec_think_bos_id": CODES + 108,
    "codec_think_eos_id": CODES + 109,
    "codec_language_id": {"chinese": CODES + 7, "english": CODES + 2, "sichuan_dialect": CODES + 14},
    "spk_id": {},
    "spk_is_dialect": {},
    "code_predictor_config": PREDICTOR,
}
SPEAKERS: dict[str, Any] = {
    "spk_id": {"vivian": CODES + 1001, "eric": CODES + 800},
    "spk_is_dialect": {"vivian": False, "eric": "sichuan_dialect"},
}
SPEAKER_ENCODER: dict[str, Any] = {
    "enc_channels": [16, 16, 16, 16, 48],
    "enc_kernel_sizes": [5, 3, 3, 3, 1],
    "enc_dilations": [1, 2, 3, 4, 1],
    "enc_attention_channels": 8,
    "enc_res2net_scale": 8,
    "enc_se_channels": 8,
    "sample_rate": 24000,
}
FILE_DEFAULTS = {"do_sample": True, "max_new_tokens": 8192, "temperature": 0.9, "top_k": 50, "top_p": 1.0}


def _model(kind: str, size: str, talker: dict[str, Any], *, seed: int, end_gain: float, **file: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": "qwen3_tts",
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_type": kind,
        "tts_model_size": size,
        "transformers_version": "4.57.2",
        "talker_config": TALKER | talker,
    }
    if kind == "base":
        config["speaker_encoder_config"] = SPEAKER_ENCODER | {"enc_dim": (TALKER | talker)["hidden_size"]}
    more = {"codec": "small", "seed": seed, "end_gain": end_gain}
    return {"config": config, "generation_config": FILE_DEFAULTS | file, **more}


WIDE: dict[str, Any] = {"hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "base-small": _model("base", "0b6", {}, seed=100, end_gain=1.5),
    "base-large": _model("base", "1b7", WIDE, seed=200, end_gain=1.5, repetition_penalty=1.2),
    "custom-small": _model("custom_voice", "0b6", SPEAKERS, seed=300, end_gain=1.5),
    "custom-large": _model("custom_voice", "1b7", WIDE | SPEAKERS, seed=400, end_gain=1.5, top_k=20),
    "design-large": _model(
        "voice_design",
        "1b7",
        WIDE | {"attention_bias": True, "num_key_value_heads": 4, "rms_norm_eps": 1e-5},
        seed=500,
        end_gain=1.5,
    ),
}

LARGE_LAYERS: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
STREAMED = LARGE_LAYERS | {
    "code_predictor_config": PREDICTOR | LARGE_LAYERS | {"hidden_size": 160},
    "num_hidden_layers": 3,
}
for _name, _kind, _more in (
    ("base-streamed", "base", {}),
    ("custom-streamed", "custom_voice", SPEAKERS),
    ("design-streamed", "voice_design", {}),
):
    MODELS[_name] = _model(_kind, "1b7", STREAMED | _more, seed=600, end_gain=0.5) | {"codec": "large"}
MODELS["base-streamed"]["config"]["speaker_encoder_config"] |= {"enc_channels": [128, 128, 128, 128, 384]}
"""Too large to be recorded, but with units that stream."""

ENGLISH = "Hello there, how are you today? It's 7 o'clock."
CHINESE = "你好，今天天气很好。"
INSTRUCT = "Speak slowly and warmly."
GREEDY = {"do_sample": False, "subtalker_dosample": False}
SOUND = {"length": 11_000, "rate_hz": 24_000, "seed": 1}
SOUND_16K = {"length": 9_000, "rate_hz": 16_000, "seed": 2}


def _case(model: str, method: str, inputs: dict[str, Any], options: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": model, "method": f"generate_{method}", "inputs": inputs, "options": options, **more}


CASES: list[dict[str, Any]] = [
    _case(
        "base-small",
        "voice_clone",
        {"text": ENGLISH, "language": "English", "ref_audio": [SOUND], "ref_text": "The quick brown fox."},
        {**GREEDY, "max_new_tokens": 10},
        sound=True,
    ),
    _case(
        "base-small",
        "voice_clone",
        {"text": CHINESE, "ref_audio": [SOUND], "x_vector_only_mode": True},
        {"max_new_tokens": 40},
        seed=1,
    ),
    _case(
        "base-small",
        "voice_clone",
        {
            "text": CHINESE,
            "language": "chinese",
            "ref_audio": [SOUND_16K],
            "ref_text": "你好，世界。",
            "non_streaming_mode": True,
        },
        {"max_new_tokens": 40, "top_p": 0.8},
        seed=2,
    ),
    _case(
        "base-large",
        "voice_clone",
        {"text": "Hi.", "language": "english", "ref_audio": [SOUND], "ref_text": "Hello."},
        {"max_new_tokens": 9},
        seed=3,
        sound=True,
    ),
    _case(
        "base-large",
        "voice_clone",
        {"text": ENGLISH, "ref_audio": [SOUND], "x_vector_only_mode": True, "non_streaming_mode": True},
        {"do_sample": False, "max_new_tokens": 12},
        seed=4,
    ),
    _case(
        "base-large",
        "voice_clone",
        {
            "text": [ENGLISH, CHINESE],
            "language": ["English", "Auto"],
            "ref_audio": [SOUND, SOUND],
            "ref_text": ["Hello there.", "你好。"],
        },
        {"max_new_tokens": 30},
        seed=5,
        sound=True,
    ),
    _case(
        "custom-small",
        "custom_voice",
        {"text": ENGLISH, "speaker": "Vivian", "language": "English", "instruct": INSTRUCT},
        {**GREEDY, "max_new_tokens": 10},
        sound=True,
    ),
    _case(
        "custom-small",
        "custom_voice",
        {"text": CHINESE, "speaker": "eric", "language": "Auto", "non_streaming_mode": False},
        {"max_new_tokens": 60},
        seed=6,
    ),
    _case(
        "custom-large",
        "custom_voice",
        {"text": CHINESE, "speaker": "vivian", "language": "chinese", "instruct": INSTRUCT},
        {"max_new_tokens": 60, "temperature": 1.1, "subtalker_temperature": 1.0, "subtalker_top_k": 7},
        seed=7,
    ),
    _case(
        "custom-large",
        "custom_voice",
        {"text": ENGLISH, "speaker": "eric", "language": "English", "non_streaming_mode": False},
        {"do_sample": True, "subtalker_dosample": False, "max_new_tokens": 16, "top_k": 0, "repetition_penalty": 1.0},
        seed=8,
    ),
    _case(
        "custom-large",
        "custom_voice",
        {"text": [CHINESE, ENGLISH], "speaker": ["vivian", "eric"], "instruct": ["", INSTRUCT]},
        {**GREEDY, "max_new_tokens": 14},
    ),
    _case(
        "design-large",
        "voice_design",
        {"text": ENGLISH, "instruct": "A calm, deep voice of an old man.", "language": "English"},
        {"max_new_tokens": 10, "subtalker_top_p": 0.7},
        seed=9,
        sound=True,
    ),
    _case(
        "design-large",
        "voice_design",
        {"text": CHINESE, "instruct": "请用温柔的声音说话。", "non_streaming_mode": False},
        {**GREEDY, "max_new_tokens": 20},
        sound=True,
    ),
    _case(
        "design-large",
        "voice_design",
        {"text": [ENGLISH, CHINESE], "instruct": ["", INSTRUCT], "language": ["Auto", "Chinese"]},
        {"max_new_tokens": 60},
        seed=10,
    ),
]
