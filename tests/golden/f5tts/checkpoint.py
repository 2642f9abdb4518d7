"""Builds the golden checkpoints again: tiny models in the official layout, with weights that follow from a seed.

Needs nothing of upstream: the names and shapes of all weights stand in `models.json`, which the recorder wrote. Weights
are whole numbers times a power of two, so they are the same on any machine.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mizuoto_runtime.audio.wav import write_wav
from tests.golden.f5tts.cases import MODELS, VOCABULARY, VOCODER

FOLDER = Path(__file__).parent
STEPS = 512
STEP_NUMBER = 1_250_000
RECORDING = "recording.wav"


def shapes() -> dict[str, dict[str, list[int]]]:
    """Names and shapes of the weights by model; the vocoder's as "vocos"."""
    recorded: dict[str, dict[str, list[int]]] = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return recorded


def write_model(
    folder: Path,
    name: str,
    *,
    known: Mapping[str, Mapping[str, list[int]]] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write the model called `name` into `folder`, its vocoder beside it; returns the folder."""
    known = known or shapes()
    model = MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    described = {"backbone": model["backbone"], **model["arch"]}
    if "mel_spec_type" in model:
        described["mel_spec_type"] = model["mel_spec_type"]
    (folder / "arch.json").write_text(json.dumps(described, indent=1), encoding="utf-8")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    weights = {f"ema_model.{key}": value.to(dtype) for key, value in make_weights(known[name], name).items()}
    if model.get("old_buffers"):
        weights["ema_model.mel_spec.mel_stft.mel_scale.fb"] = torch.ones(513, 100)
        weights["ema_model.mel_spec.mel_stft.spectrogram.window"] = torch.ones(1024)
    weights |= {"initted": torch.tensor(True), "step": torch.tensor(STEP_NUMBER)}
    path = folder / f"model_{STEP_NUMBER}{model.get('suffix', '.safetensors')}"
    if path.suffix == ".pt":
        torch.save({"ema_model_state_dict": weights, "update": STEP_NUMBER}, path)
    else:
        save_file(weights, path)
    return folder


def write_vocoder(folder: Path, known: Mapping[str, Mapping[str, list[int]]] | None = None) -> Path:
    """Write the vocoder into `folder`; returns it."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(VOCODER), encoding="utf-8")
    torch.save(make_weights((known or shapes())["vocos"], "vocos"), folder / "pytorch_model.bin")
    return folder


def make_weights(shapes: Mapping[str, list[int]], seed: str) -> dict[str, Tensor]:
    """float32 weights by name; each depends on its own name, its shape and the seed only."""
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: list[int], seed: str) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    leaf = name.rpartition(".")[2]
    if leaf == "inv_freq":
        return 1.0 / (10_000 ** (torch.arange(0, 2 * shape[0], 2).float() / (2 * shape[0])))
    if leaf == "window":
        return torch.hann_window(shape[0])
    noise = torch.randint(-STEPS, STEPS + 1, shape, generator=generator).float() / STEPS
    if leaf in ("gamma", "beta", "g") or ("norm" in name and len(shape) == 1 and "linear" not in name):
        return 0.25 * noise + (0.0 if leaf in ("bias", "beta") else 0.75)
    if "head.out" in name:
        return 2.0**-2 * noise + (1.0 if leaf == "bias" else 0.0)
    if len(shape) < 2:
        return 0.125 * noise
    if "text_embed.text_embed" in name:
        return noise
    gain = 4.0 if "proj_out" in name else 2.0 if "attn_norm" in name else 1.0
    return gain * 2.0 ** -round(math.log2(math.prod(shape[1:])) / 2 - 0.75) * noise


def sound(length: int, seed: int, *, channels: int = 1, gain: float = 1.0, rate_hz: int = 24_000) -> Tensor:
    """(channels, length) float32 within -1 … 1, in whole steps of 2**-15: a buzz with noise and a slow swell."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(-2048, 2049, (channels, length), generator=generator)
    time = torch.arange(length)
    buzz = (time % 160 - 80) * 128 + (time % 107 - 53) * 64
    swell = (time % 6000 - 3000).abs() + 500
    whole = ((buzz + noise) * swell * gain / 3500).round().clamp(-32768, 32767)
    return whole.float() / 32768


def install(base: Path) -> None:
    """Into a ComfyUI base directory: the model "v1" under a published name, its vocoder, and a recording to clone."""
    models = base / "models" / "mizuoto" / "f5tts"
    write_vocoder(models / "vocos")
    write_model(models / "F5TTS_v1_Base", "v1")
    (base / "input").mkdir(exist_ok=True)
    write_wav(base / "input" / RECORDING, sound(36_000, 41), 24_000)
