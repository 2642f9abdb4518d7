"""Writes the golden voices: tiny random ones of each quality, exported by piper-tts's own training code.

Run in an environment with `piper-tts[train]==1.8.0`, torch 2.13 and onnxruntime, from the repository's root:

    python -m tests.golden.piper.record

For each voice it writes `<name>.onnx.xz`, `<name>.onnx.json` and `<name>.safetensors` (noise in, samples out, as
onnxruntime computes them), and `golden.json` with the versions, the seed, the tolerance and the cases.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import tempfile
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from piper.train import export_onnx
from piper.train.vits.lightning import VitsModel
from piper.train.vits.models import DurationPredictor
from safetensors.numpy import save_file

from tests.golden.piper.reference import ReferenceVoice

FOLDER = Path(__file__).parent
SEED = 20_260_101
TOLERANCE = 1e-4
SYMBOLS = 40
PEAK = 0.7
LOW = {
    "resblock": "2",
    "resblock_kernel_sizes": (3, 5, 7),
    "resblock_dilation_sizes": ((1, 2), (2, 6), (3, 12)),
    "upsample_rates": (8, 8, 4),
    "upsample_initial_channel": 16,
    "upsample_kernel_sizes": (16, 16, 8),
}
HIGH = {
    "resblock": "1",
    "resblock_kernel_sizes": (3, 7, 11),
    "resblock_dilation_sizes": ((1, 3, 5), (1, 3, 5), (1, 3, 5)),
    "upsample_rates": (8, 8, 2, 2),
    "upsample_initial_channel": 16,
    "upsample_kernel_sizes": (16, 16, 4, 4),
}
TINY = {"inter_channels": 8, "hidden_channels": 12, "filter_channels": 20, "n_layers": 2}
VOICES: dict[str, dict[str, Any]] = {
    "x_low": {**LOW, **TINY, "hidden_channels": 8, "sample_rate": 16_000},
    "low": {**LOW, **TINY, "sample_rate": 16_000},
    "medium": {**LOW, **TINY, "n_layers": 6},
    "high": {**HIGH, **TINY},
    "medium_speakers": {**LOW, **TINY, "num_speakers": 5, "gin_channels": 6},
    "high_speakers_plain_durations": {**HIGH, **TINY, "num_speakers": 3, "gin_channels": 6, "use_sdp": False},
}
CASES = (
    {"symbols": 1, "scales": (0.667, 1.0, 0.8)},
    {"symbols": 4, "scales": (0.0, 1.0, 0.0)},
    {"symbols": 21, "scales": (0.667, 1.3, 0.8)},
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    cases = {name: record(name, options, SEED + index) for index, (name, options) in enumerate(VOICES.items())}
    versions = {name: metadata.version(name) for name in ("piper-tts", "torch", "onnx", "onnxruntime", "lightning")}
    golden = {"versions": versions, "seed": SEED, "tolerance": TOLERANCE, "voices": cases}
    (FOLDER / "golden.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()):,} bytes in all")


def record(name: str, options: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Export one voice and run its cases; returns what golden.json says of them."""
    model = make_model(options, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        export(model, path)
        voice = ReferenceVoice(path)
        (FOLDER / f"{name}.onnx.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))
    (FOLDER / f"{name}.onnx.json").write_text(json.dumps(settings(options)) + "\n", encoding="utf-8")
    arrays: dict[str, np.ndarray] = {}
    said = []
    for index, case in enumerate(CASES):
        speakers = options.get("num_speakers", 1)
        speaker_id = (index + 1) % speakers if speakers > 1 else None
        draws = run_case(voice, case, speaker_id, options["inter_channels"], np.random.default_rng(seed + index))
        arrays.update({f"{index}.{key}": value for key, value in draws.items()})
        said.append({"scales": case["scales"], "speaker_id": speaker_id})
    save_file(arrays, FOLDER / f"{name}.safetensors")
    return said


def make_model(options: dict[str, Any], seed: int) -> VitsModel:
    """A voice with random weights, none of them left at a neutral initial value."""
    torch.manual_seed(seed)
    model = VitsModel(num_symbols=SYMBOLS, mos_metric=None, **options)
    for parameter in model.model_g.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    if isinstance(model.model_g.dp, DurationPredictor):
        for parameter in model.model_g.dp.parameters():
            parameter.data = parameter.data.mul(64).round().clamp(-3, 3).div(64)  # few values, so that xz is small
    set_loudness(model, options)
    return model


def set_loudness(model: VitsModel, options: dict[str, Any]) -> None:
    """Scale the last convolution so that the peak is about PEAK; random weights may give near silence."""
    speaker = torch.tensor([0]) if options.get("num_speakers", 1) > 1 else None
    with torch.no_grad():
        ids = torch.arange(SYMBOLS)[None]
        samples = model.model_g.eval().infer(ids, torch.tensor([SYMBOLS]), sid=speaker)[0]
        model.model_g.dec.conv_post.weight.mul_(PEAK / torch.atanh(samples).abs().max())


def export(model: VitsModel, path: Path) -> None:
    """Run piper-tts's exporter; it was written for the exporter that torch 2.9 and later use only when asked."""
    with (
        mock.patch.object(export_onnx.VitsModel, "load_from_checkpoint", lambda *_, **__: model),
        mock.patch.object(torch.onnx, "export", partial(torch.onnx.export, dynamo=False)),
        mock.patch.object(sys, "argv", ["export_onnx", "--checkpoint", "none", "--output-file", str(path)]),
    ):
        export_onnx.main()


def settings(options: dict[str, Any]) -> dict[str, Any]:
    speakers = options.get("num_speakers", 1)
    return {
        "audio": {"sample_rate": options.get("sample_rate", 22_050)},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_type": "espeak",
        "phoneme_id_map": {chr(ord("A") + index): [index] for index in range(SYMBOLS)},
        "num_symbols": SYMBOLS,
        "num_speakers": speakers,
        "speaker_id_map": {f"speaker {index}": index for index in range(speakers)} if speakers > 1 else {},
    }


def run_case(
    voice: ReferenceVoice, case: dict[str, Any], speaker_id: int | None, channels: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    symbols, scales = case["symbols"], case["scales"]
    ids = rng.integers(0, SYMBOLS, (1, symbols))
    duration_noise = rng.standard_normal((1, 2, symbols), dtype=np.float32)
    drawn = {"duration_noise": duration_noise, "speaker_id": speaker_id}
    frames = int(voice.durations(ids, scales, **drawn).sum())
    latent_noise = rng.standard_normal((1, channels, frames), dtype=np.float32)
    result = voice.run(ids, scales, latent_noise=latent_noise, **drawn)
    return {
        "ids": ids,
        "duration_noise": duration_noise,
        "latent_noise": latent_noise,
        "durations": result.durations,
        "latents": result.latents,
        "samples": result.samples,
    }


if __name__ == "__main__":
    main()
