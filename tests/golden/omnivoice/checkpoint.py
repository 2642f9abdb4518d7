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
HEAD_GAIN = 6.0
"""So that the likeliest code is clearly likelier than the next."""


def models() -> dict[str, Any]:
    """What `models.json` says: {name: {"config", "shapes", "seed"}}."""
    described: dict[str, Any] = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return described


def write_checkpoint(
    folder: Path, name: str, *, dtype: torch.dtype = torch.float32, described: Mapping[str, Any] | None = None
) -> Path:
    """Write the model called `name` into `folder`, its codec apart; returns the folder."""
    model = (described or models())[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model["config"], indent=1) + "\n", encoding="utf-8")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(FOLDER / file, folder)
    weights = {key: tensor.to(dtype) for key, tensor in make_weights(model["shapes"], model["seed"]).items()}
    weights["codebook_layer_offsets"] = (
        torch.arange(model["config"]["num_audio_codebook"]) * model["config"]["audio_vocab_size"]
    )
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def make_weights(shapes: Mapping[str, list[int]], seed: int) -> dict[str, Tensor]:
    """float32 weights by name; each depends on its own name, shape and the seed only."""
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: list[int], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    noise = torch.randint(-STEPS, STEPS + 1, shape, generator=generator).float() / STEPS
    if "norm" in name:
        return 0.25 * noise + 1.0
    if len(shape) < 2:
        return 0.125 * noise
    if "embed" in name:
        return noise
    gain = HEAD_GAIN if name.startswith("audio_heads") else 1.0
    return gain * 2.0 ** -round(math.log2(shape[1]) / 2 - 0.75) * noise
