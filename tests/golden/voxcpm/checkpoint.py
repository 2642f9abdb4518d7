"""Builds the golden checkpoints again: tiny models in the official layout, with weights that follow from a seed.

Needs nothing of upstream: the names and shapes of all weights stand in `models.json`, which the recorder wrote. Weights
are whole numbers times a power of two, so they are the same on any machine.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mizuoto_runtime.audio.wav import write_wav
from tests.golden.voxcpm.cases import CONFIGS, FILES

FOLDER = Path(__file__).parent
STEPS = 512
PROMPT = "voice.wav"
ROOM = 120
"""Positions of a model without an end."""
VAE = "audio_vae."


def models() -> dict[str, dict[str, Any]]:
    """By name: {"shapes": {weight: shape}, "seed": …}."""
    described: dict[str, dict[str, Any]] = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return described


def write_checkpoint(
    folder: Path,
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    endless: bool = False,
    described: Mapping[str, Any] | None = None,
) -> Path:
    """Write the model called `name` into `folder`; returns it.

    dtype: of the model's weights; its VAE is float32. endless: whether it finds no end before there is no more room.
    """
    model, files = (described or models())[name], FILES[name]
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIGS[name] | {"dtype": str(dtype).removeprefix("torch.")}
    if endless:
        config["max_length"] = ROOM
    _write_json(folder / "config.json", config)
    for file in ("tokenizer.json", "special_tokens_map.json"):
        (folder / file).write_bytes((FOLDER / file).read_bytes())
    settings = json.loads((FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))
    _write_json(folder / "tokenizer_config.json", settings | ({"legacy": True} if files.get("legacy") else {}))
    weights = make_weights(model["shapes"], model["seed"])
    if endless:
        weights["stop_head.weight"].zero_()
        _last_gain(weights).mul_(0.1)
    vae = {key.removeprefix(VAE): value for key, value in weights.items() if key.startswith(VAE)}
    main = {key: value.to(dtype) for key, value in weights.items() if not key.startswith(VAE)}
    _save(main, folder / files["weights"], files["wrapped"])
    _save(vae, folder / files["vae"], files["wrapped"])
    return folder


def _last_gain(weights: Mapping[str, Tensor]) -> Tensor:
    """The gain of the VAE's last convolution, on which it depends how loud speech is."""
    gains = [name for name in weights if re.fullmatch(re.escape(VAE) + r"decoder\.model\.\d+\.weight_g", name)]
    return weights[max(gains, key=lambda name: int(name.split(".")[-2]))]


def _save(weights: dict[str, Tensor], path: Path, wrapped: bool) -> None:
    if path.suffix == ".safetensors":
        save_file(weights, path, {"format": "pt"})
    else:
        torch.save({"state_dict": weights} if wrapped else weights, path)


def make_weights(shapes: Mapping[str, list[int]], seed: int) -> dict[str, Tensor]:
    """float32 weights by name; each depends on its own name, its shape and the seed only."""
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: list[int], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    leaf = name.rpartition(".")[2]
    if leaf == "sr_bin_boundaries":
        return torch.tensor([20_000, 30_000, 40_000], dtype=torch.int32)
    noise = torch.randint(-STEPS, STEPS + 1, shape, generator=generator).float() / STEPS
    if leaf == "weight_g":
        return (0.25 * noise + 0.75) * (2.0**-4 if ".fc_" in name else 1.0)
    if leaf == "alpha" or ("norm" in name and len(shape) == 1) or "scale_embed" in name:
        return 0.25 * noise + 1.0
    if leaf == "special_token" or "embed_tokens" in name:
        return noise
    if len(shape) < 2:
        return 0.125 * noise
    gain = 32.0 if "stop_head" in name else 1.0
    return gain * 2.0 ** -round(math.log2(math.prod(shape[1:])) / 2 - 0.75) * noise


def sound(length: int, seed: int, *, rate_hz: int = 16_000, channels: int = 1) -> Tensor:
    """(channels, length) float32 within -1 … 1, in whole steps of 2**-15: a buzz with noise and a slow swell."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(-2048, 2049, (channels, length), generator=generator)
    time = torch.arange(length)
    buzz = (time % 160 - 80) * 128 + (time % 107 - 53) * 64
    swell = (time % 6000 - 3000).abs() + 500
    whole = ((buzz + noise) * swell / 3500).round().clamp(-32768, 32767)
    return whole.float() / 32768


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def install(base: Path) -> None:
    """Into a ComfyUI base directory: a model of the real rates under a published name, and a recording to clone."""
    write_checkpoint(base / "models" / "mizuoto" / "voxcpm" / "VoxCPM2", "v2-rates", endless=True)
    (base / "input").mkdir(exist_ok=True)
    write_wav(base / "input" / PROMPT, sound(16_000, 51), 16_000)
