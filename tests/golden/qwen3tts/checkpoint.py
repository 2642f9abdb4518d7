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

FOLDER = Path(__file__).parent
STEPS = 512
QUIET = 2.0**-6
"""What the codec's last convolution is multiplied with, so that its sound isn't clipped."""


def models() -> dict[str, Any]:
    """What `models.json` says: {"codecs": {name: …}, "models": {name: {"codec", "config", "shapes", …}}}."""
    described: dict[str, Any] = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return described


def write_checkpoint(
    folder: Path, name: str, *, dtype: torch.dtype = torch.float32, shards: int = 1, described: Any = None
) -> Path:
    """Write the model called `name` into `folder`; returns it. shards: over how many files its weights are spread."""
    described = described or models()
    model = described["models"][name]
    codec = described["codecs"][model["codec"]]
    codec_folder = folder / "speech_tokenizer"
    codec_folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", model["config"])
    _write_json(folder / "generation_config.json", model["generation_config"])
    _write_json(folder / "preprocessor_config.json", {"padding_side": "left", "processor_class": "Qwen3TTSProcessor"})
    _write_json(codec_folder / "config.json", codec["config"])
    _write_json(codec_folder / "preprocessor_config.json", codec["preprocessor_config"])
    for file in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(FOLDER / file, folder)
    weights = {key: tensor.to(dtype) for key, tensor in make_weights(model["shapes"], model["seed"]).items()}
    loud = model["config"]["talker_config"]["codec_eos_token_id"]
    weights["talker.codec_head.weight"][loud] *= model["end_gain"]
    save_shards(weights, folder, shards)
    codec_weights = make_weights(codec["shapes"], codec["seed"])
    for key in codec["quiet"]:
        codec_weights[key] *= QUIET
    save_file(codec_weights, codec_folder / "model.safetensors", {"format": "pt"})
    return folder


def save_shards(weights: Mapping[str, Tensor], folder: Path, shards: int) -> None:
    """One `model.safetensors`, or several with their index."""
    if shards == 1:
        save_file(dict(weights), folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(weights)
    places = {}
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = names[index::shards]
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
        places.update(dict.fromkeys(part, file))
    _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})


def make_weights(shapes: Mapping[str, list[int]], seed: int) -> dict[str, Tensor]:
    """float32 weights by name; each depends on its own name, shape and the seed only."""
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: list[int], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    noise = torch.randint(-STEPS, STEPS + 1, shape, generator=generator).float() / STEPS
    leaf = name.rpartition(".")[2]
    if leaf == "initialized":
        return torch.ones(shape)
    if leaf == "cluster_usage":
        return noise.abs() + 0.5
    if leaf in ("alpha", "beta") or "layer_scale" in name or leaf == "gamma":
        return 0.25 * noise + (0.0 if leaf in ("alpha", "beta") else 0.5)
    if "norm" in name and len(shape) == 1:
        return 0.25 * noise + (1.0 if leaf == "weight" else 0.0)
    if len(shape) < 2:
        return 0.125 * noise
    if "embed" in name:
        return noise
    inputs = math.prod(shape[1:])
    gain = 2.0 if "head" in name else 1.0
    return gain * 2.0 ** -round(math.log2(inputs) / 2 - 0.75) * noise


def reference_sound(length: int, seed: int) -> Tensor:
    """(length) float32 within -1 … 1: a buzz with noise and a slow swell, from whole numbers only."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(-2048, 2049, (length,), generator=generator)
    time = torch.arange(length)
    buzz = (time % 160 - 80) * 128 + (time % 107 - 53) * 64
    swell = (time % 6000 - 3000).abs() + 500
    return ((buzz + noise) * swell / 3500 / 32768).float()


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
