"""Builds the golden checkpoints again: tiny models in the official layout, with weights that follow from a seed.

Needs nothing of upstream: configurations, and the names and shapes of all weights, stand in `models.json`, which the
recorder wrote. Weights are whole numbers times a power of two, so they are the same on any machine.
"""

from __future__ import annotations

import json
import math
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mizuoto_runtime.audio.wav import write_wav

FOLDER = Path(__file__).parent
STEPS = 512
HEAD_GAIN = 6.0
"""So that the likeliest code is clearly likelier than the next."""
QUIET = 2.0**-8
"""What the codec's last convolution is multiplied with, so that its sound isn't clipped."""
MODEL, RECORDING = "OmniVoice", "speaker.wav"


def models() -> dict[str, Any]:
    """What `models.json` says: {"codec": {"config", "shapes", …}, "models": {name: {"config", "shapes", "seed"}}}."""
    described: dict[str, Any] = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return described


def write_checkpoint(
    folder: Path, name: str, *, dtype: torch.dtype = torch.float32, described: Mapping[str, Any] | None = None
) -> Path:
    """Write the model called `name` into `folder`; returns it. dtype: of all but the codec."""
    described = described or models()
    model, codec = described["models"][name], described["codec"]
    codec_folder = folder / "audio_tokenizer"
    codec_folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", model["config"])
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(FOLDER / file, folder)
    weights = {key: tensor.to(dtype) for key, tensor in make_weights(model["shapes"], model["seed"]).items()}
    config = model["config"]
    weights["codebook_layer_offsets"] = torch.arange(config["num_audio_codebook"]) * config["audio_vocab_size"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    _write_json(codec_folder / "config.json", codec["config"])
    _write_json(codec_folder / "preprocessor_config.json", codec["preprocessor_config"])
    codec_weights = make_weights(codec["shapes"], codec["seed"])
    for key in codec["quiet"]:
        codec_weights[key] *= QUIET
    save_file(codec_weights, codec_folder / "model.safetensors", {"format": "pt"})
    return folder


def make_weights(shapes: Mapping[str, list[int]], seed: int) -> dict[str, Tensor]:
    """float32 weights by name; each depends on its own name, shape and the seed only."""
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: list[int], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    noise = torch.randint(-STEPS, STEPS + 1, shape, generator=generator).float() / STEPS
    leaf = name.rpartition(".")[2]
    if leaf == "inited":
        return torch.ones(shape)
    if leaf in ("alpha", "original0"):
        return 0.25 * noise + 1.0
    if "norm" in name and len(shape) == 1:
        return 0.25 * noise + (1.0 if leaf == "weight" else 0.0)
    if len(shape) < 2:
        return 0.125 * noise
    if "embed" in name and "pos_conv" not in name:
        return noise
    gain = HEAD_GAIN if name.startswith("audio_heads") else 1.0
    return gain * 2.0 ** -round(math.log2(math.prod(shape[1:])) / 2 - 0.75) * noise


def reference_sound(length: int, seed: int, *, gain: float = 0.9, channels: int = 1) -> Tensor:
    """(channels, length) float32 within -1 … 1: a buzz with noise and a slow swell, from whole numbers only."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(-2048, 2049, (channels, length), generator=generator)
    time = torch.arange(length)
    buzz = (time % 160 - 80) * 128 + (time % 107 - 53) * 64
    swell = (time % 6000 - 3000).abs() + 500
    whole = ((buzz + noise) * swell * gain / 3500).round().clamp(-32768, 32767)
    return whole.float() / 32768


def install(base: Path) -> None:
    """Into a ComfyUI base directory: the model "small" under the published name, and a recording to clone."""
    write_checkpoint(base / "models" / "mizuoto" / "omnivoice" / MODEL, "small")
    (base / "input").mkdir(parents=True, exist_ok=True)
    write_wav(base / "input" / RECORDING, reference_sound(36_000, 41), 24_000)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
