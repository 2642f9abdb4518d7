"""Writes the golden codecs and speaker encoder: tiny random ones in the official layout, run by upstream's own classes.

Run in an environment with `qwen-tts==0.1.1` (transformers 4.57.3), torch 2.13 and librosa, from the repository's root:

    python -m tests.golden.qwen3tts.record_codec

It writes a folder for each codec and one for the speaker encoder, with `config.json` and `model.safetensors` as
published and `cases.safetensors` (inputs, and what upstream makes of them), and `codec.json` with versions, seed and
tolerances.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import librosa
import torch
from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSSpeakerEncoderConfig
from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSSpeakerEncoder, mel_spectrogram
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model
from safetensors.torch import save_file
from torch import Tensor

from tests.golden.qwen3tts.signals import exact_signal

FOLDER = Path(__file__).parent
SEED = 20_260_105
TOLERANCES = {"samples": 1e-4, "embedding": 1e-5, "mel": 1e-5, "resampled": 1e-6}
PEAK = 1.2
CODECS: dict[str, dict[str, Any]] = {
    "codec_plain": {
        "decoder_config": {
            "codebook_size": 64, "codebook_dim": 16, "latent_dim": 24, "hidden_size": 16, "intermediate_size": 24,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 6, "num_hidden_layers": 3,
            "sliding_window": 8, "num_quantizers": 5, "upsample_rates": [4, 3, 2, 1], "upsampling_ratios": [2, 1],
            "decoder_dim": 32,
        },
        "encoder_config": {
            "num_filters": 4, "hidden_size": 16, "upsampling_ratios": [4, 3, 2], "num_hidden_layers": 2,
            "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 5,
            "codebook_size": 64, "codebook_dim": 8, "vector_quantization_hidden_dimension": 8, "num_quantizers": 7,
            "upsample_groups": 4,
        },
        "encoder_valid_num_quantizers": 5, "decode_upsample_rate": 48, "encode_downsample_rate": 48,
    },
    "codec_varied": {
        "decoder_config": {
            "codebook_size": 32, "codebook_dim": 12, "latent_dim": 16, "hidden_size": 24, "intermediate_size": 20,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_hidden_layers": 2,
            "sliding_window": 400, "attention_bias": True, "hidden_act": "gelu", "num_quantizers": 3,
            "upsample_rates": [5], "upsampling_ratios": [3, 2], "decoder_dim": 12, "rope_theta": 500,
        },
        "encoder_config": {
            "num_filters": 2, "hidden_size": 12, "upsampling_ratios": [5, 3], "num_hidden_layers": 1,
            "intermediate_size": 16, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6,
            "attention_bias": True, "hidden_act": "relu", "codebook_size": 32, "codebook_dim": 12,
            "vector_quantization_hidden_dimension": 12, "num_quantizers": 4, "num_semantic_quantizers": 2,
            "pad_mode": "replicate", "use_conv_shortcut": True, "num_residual_layers": 2, "residual_kernel_size": 5,
            "dilation_growth_rate": 3, "compress": 1, "kernel_size": 3, "last_kernel_size": 5, "upsample_groups": 2,
        },
        "encoder_valid_num_quantizers": 3, "decode_upsample_rate": 30, "encode_downsample_rate": 30,
    },
}
SPEAKER = {
    "mel_dim": 128, "enc_dim": 20, "enc_channels": [16, 16, 16, 32], "enc_kernel_sizes": [5, 3, 2, 1],
    "enc_dilations": [1, 2, 3, 1], "enc_attention_channels": 6, "enc_res2net_scale": 4, "enc_se_channels": 5,
}
DECODED_FRAMES = {"codec_plain": (1, 2, 9, 300, 301, 640), "codec_varied": (3, 326)}
ENCODED_SAMPLES = {"codec_plain": (1, 47, 48, 49, 6001, 140_011), "codec_varied": (29, 4501, 70_003)}
SPOKEN_SAMPLES = (2000, 24_001)
RESAMPLED_HZ = (8000, 44_100, 48_000)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with torch.no_grad():
        for name, sizes in CODECS.items():
            record_codec(name, sizes)
        record_speaker()
    versions = {name: metadata.version(name) for name in ("qwen-tts", "transformers", "torch", "librosa", "soxr")}
    golden = {"versions": versions, "seed": SEED, "tolerances": TOLERANCES, "codecs": list(CODECS)}
    (FOLDER / "codec.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(path.stat().st_size for path in FOLDER.rglob('*') if path.is_file()):,} bytes in all")


def record_codec(name: str, sizes: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(SEED)
    config = Qwen3TTSTokenizerV2Config(**sizes)
    model = Qwen3TTSTokenizerV2Model(config).eval()
    randomise(model, generator)
    fit_codebooks(model, generator)
    set_loudness(model)
    cases: dict[str, Tensor] = dict(decoded(model, DECODED_FRAMES[name], generator))
    for length in ENCODED_SAMPLES[name]:
        samples = exact_signal(length)[None]
        (codes,) = model.encode(samples, torch.ones_like(samples, dtype=torch.long)).audio_codes
        cases[f"encode.{length}.codes"] = codes.T.contiguous().to(torch.uint8)
    save(FOLDER / name, model.state_dict(), {**config.to_diff_dict(), **sizes}, cases)


def randomise(model: torch.nn.Module, generator: torch.Generator) -> None:
    """No weight keeps a neutral initial value."""
    for key, weight in model.state_dict().items():
        draw = torch.randn(weight.shape, generator=generator)
        if key.endswith("cluster_usage"):
            weight.copy_(draw.abs() + 0.3)
        elif key.endswith(("layer_scale.scale", "gamma")):
            weight.copy_(0.3 + 0.1 * draw)
        elif "norm.weight" in key or "layernorm.weight" in key:
            weight.copy_(1 + 0.2 * draw)
        elif key.endswith("initialized"):
            weight.fill_(1)
        else:
            fan_in = weight[0].numel() if weight.ndim > 1 else 25
            weight.copy_(draw / fan_in**0.5)


def fit_codebooks(model: Qwen3TTSTokenizerV2Model, generator: torch.Generator) -> None:
    """Spread the encoder's vectors as its embeddings are, so that all codes occur."""
    encoder = model.encoder
    hidden = encoder.encoder(exact_signal(6000)[None, None])
    hidden = encoder.encoder_transformer(hidden.transpose(1, 2))[0].transpose(1, 2)
    hidden = encoder.downsample(hidden)
    quantizer = encoder.quantizer
    for books in (quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer):
        residual = hidden if books.input_proj is None else books.input_proj(hidden)
        for layer in books.layers:
            book = layer.codebook
            draws = torch.randn(book.embed_sum.shape, generator=generator)
            mean, spread = residual[0].mean(dim=1), residual[0].std(dim=1)
            book.embed_sum.copy_((mean + spread * draws) * book.cluster_usage[:, None])
            book._embed = None
            residual = residual - layer.decode(layer.encode(residual))


def set_loudness(model: Qwen3TTSTokenizerV2Model) -> None:
    """Scale the last convolution so that a few samples go beyond full scale."""
    last = model.decoder.decoder[-1].conv
    codes = torch.arange(40).repeat(model.config.decoder_config.num_quantizers, 1) % 32
    last.weight.mul_(0.01)
    last.bias.mul_(0.01)
    factor = PEAK / model.decoder(codes[None]).abs().max()
    last.weight.mul_(factor)
    last.bias.mul_(factor)


def decoded(
    model: Qwen3TTSTokenizerV2Model, lengths: tuple[int, ...], generator: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    sizes = model.config.decoder_config
    for frames in lengths:
        codes = torch.randint(sizes.codebook_size, (1, frames, sizes.num_quantizers), generator=generator)
        (samples,) = model.decode(codes).audio_values
        yield f"decode.{frames}.codes", codes[0].T.contiguous().to(torch.uint8)
        yield f"decode.{frames}.samples", samples


def record_speaker() -> None:
    generator = torch.Generator().manual_seed(SEED)
    model = Qwen3TTSSpeakerEncoder(Qwen3TTSSpeakerEncoderConfig(**SPEAKER)).eval()
    randomise(model, generator)
    cases: dict[str, Tensor] = {}
    for length in SPOKEN_SAMPLES:
        mel = mel_spectrogram(exact_signal(length)[None], 1024, 128, 24_000, 256, 1024, 0, 12_000).transpose(1, 2)
        cases[f"mel.{length}"] = mel[0].contiguous()
        cases[f"embedding.{length}"] = model(mel)[0]
    for rate_hz in RESAMPLED_HZ:
        resampled = librosa.resample(exact_signal(3000).numpy(), orig_sr=rate_hz, target_sr=24_000)
        cases[f"resampled.{rate_hz}"] = torch.from_numpy(resampled)
    weights = {f"speaker_encoder.{name}": weight for name, weight in model.state_dict().items()}
    save(FOLDER / "speaker", weights, {"tts_model_type": "base", "speaker_encoder_config": SPEAKER}, cases)


def save(folder: Path, weights: dict[str, Tensor], config: dict[str, Any], cases: dict[str, Tensor]) -> None:
    folder.mkdir(exist_ok=True)
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(cases, folder / "cases.safetensors")


if __name__ == "__main__":
    main()
