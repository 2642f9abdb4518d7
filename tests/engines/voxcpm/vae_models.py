"""Audio VAEs of any size with random weights, built without a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from mizuoto_runtime.engines.voxcpm.vae_config import DEFAULTS, KEY, VaeConfig, parse_vae_config
from mizuoto_runtime.weights.entries import Entry, read_entry

GOLDEN = Path(__file__).parents[2] / "golden" / "voxcpm" / "vae"
RECORDED: dict[str, Any] = json.loads((GOLDEN / "vae.json").read_text(encoding="utf-8"))
Module = TypeVar("Module", bound=nn.Module)


def golden_config(name: str) -> VaeConfig:
    return parse_vae_config(read_entry(GOLDEN / name / "config.json"), RECORDED["vaes"][name])


def config_of(sizes: dict[str, object], architecture: str = "voxcpm2") -> VaeConfig:
    assert architecture == "voxcpm" or architecture == "voxcpm2"
    assert architecture in DEFAULTS
    return parse_vae_config(Entry({KEY: sizes}, "test"), architecture)


REAL = {name: config_of(real["sizes"], real["architecture"]) for name, real in RECORDED["real"].items()}
SMALL = config_of(
    {
        "encoder_dim": 24, "encoder_rates": [2, 3, 4, 4], "latent_dim": 16, "decoder_dim": 384,
        "decoder_rates": [4, 4, 3, 2],
    }
)  # fmt: skip
"""Small, but with weights that are large enough to stream."""
SMALL_FIRST = config_of(
    {
        "encoder_dim": 24, "encoder_rates": [3, 4, 5], "latent_dim": 16, "decoder_dim": 256,
        "decoder_rates": [5, 4, 3], "depthwise": False,
    },
    "voxcpm",
)  # fmt: skip


def with_random_weights(module: Module) -> Module:
    """In place; values stay near 1 from layer to layer."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in module.named_parameters():
        draw = torch.randn(weight.shape, generator=generator)
        if name.endswith("scale"):
            draw = 1 + 0.2 * draw
        elif name.endswith("taps"):
            draw /= weight[:, 0].numel() ** 0.5
        elif weight.ndim > 1:
            draw *= (0.3 if "pointwise" in name else 1) / weight.shape[1] ** 0.5
        else:
            draw = 0.1 * draw
        weight.data = draw
    return module.requires_grad_(False).eval()
