"""Tiny audio VAEs in the official layout, against what upstream's own classes made of the same signals."""

from __future__ import annotations

import functools
import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mizuoto_runtime.engines.voxcpm import vae_layers
from mizuoto_runtime.engines.voxcpm.vae_config import DEFAULTS
from mizuoto_runtime.engines.voxcpm.vae_decoder import VaeDecoder
from mizuoto_runtime.engines.voxcpm.vae_encoder import VaeEncoder
from mizuoto_runtime.engines.voxcpm.vae_layout import convolutions, others, outputs
from mizuoto_runtime.engines.voxcpm.vae_weights import load_vae
from tests.engines.voxcpm.vae_models import GOLDEN, REAL, RECORDED, config_of, golden_config
from tests.golden.voxcpm.vae.signals import exact_latents, exact_sound

TOLERANCES: dict[str, float] = RECORDED["tolerances"]
CASES: dict[str, dict[str, Tensor]] = {
    name: load_file(GOLDEN / name / "cases.safetensors") for name in RECORDED["vaes"]
}


@functools.cache
def loaded(name: str) -> tuple[VaeDecoder, VaeEncoder]:
    decoder, encoder = load_vae(GOLDEN / name, golden_config(name))
    assert encoder is not None
    return decoder, encoder


def numbers(kind: str) -> list[tuple[str, int]]:
    found = [(name, int(key.split(".")[1])) for name in CASES for key in CASES[name] if key.startswith(kind)]
    assert len({name for name, _ in found}) == len(CASES)
    return sorted(found)


@pytest.mark.parametrize(("name", "frames"), numbers("decode"))
def test_decoding_agrees(name: str, frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, _ = loaded(name)
    expected = CASES[name][f"decode.{frames}"]
    latents = exact_latents(frames, decoder.config.latent_dim)
    samples = decoder.decode(latents)
    assert samples.dtype == torch.float32 and samples.shape == expected.shape
    assert expected.std() > 1000 * TOLERANCES["samples"]
    torch.testing.assert_close(samples, expected, atol=TOLERANCES["samples"], rtol=0)
    monkeypatch.setattr(vae_layers, "TILE_ELEMENTS", 100)
    torch.testing.assert_close(decoder.decode(latents, tile_frames=4), expected, atol=TOLERANCES["samples"], rtol=0)


@pytest.mark.parametrize(("name", "length"), numbers("encode"))
def test_encoding_agrees(name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, encoder = loaded(name)
    expected = CASES[name][f"encode.{length}"]
    latents = encoder.encode(exact_sound(length))
    assert latents.dtype == torch.float32 and latents.shape == expected.shape
    assert len(latents) == encoder.config.frames(length)
    assert expected.std() > 1000 * TOLERANCES["latents"]
    torch.testing.assert_close(latents, expected, atol=TOLERANCES["latents"], rtol=0)
    monkeypatch.setattr(vae_layers, "TILE_ELEMENTS", 1000)
    tiled = encoder.encode(exact_sound(length), tile_frames=2)
    torch.testing.assert_close(tiled, expected, atol=TOLERANCES["latents"], rtol=0)


@pytest.mark.parametrize("name", RECORDED["real"])
def test_the_real_layouts_are_known(name: str) -> None:
    """Names and shapes of all weights, by a digest of upstream's."""
    config = REAL[name]
    shapes: dict[str, list[int]] = {key: list(shape) for key, shape in others(config).items()}
    for key, shape in convolutions(config).items():
        shapes[f"{key}.bias"] = [outputs(key, shape, config)]
        shapes |= {f"{key}.weight_g": [shape[0], 1, 1], f"{key}.weight_v": list(shape)}
    digest = hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()
    assert digest == RECORDED["real"][name]["digest"]


@pytest.mark.parametrize("architecture", DEFAULTS)
def test_the_defaults_are_upstreams(architecture: str) -> None:
    assert config_of({}, architecture) == config_of(RECORDED["defaults"][architecture], architecture)
    assert config_of({}, architecture) == DEFAULTS[architecture]  # type: ignore[index]


def test_the_real_rates() -> None:
    rates = {name: (config.input_hop, config.output_hop, config.output_rate_hz) for name, config in REAL.items()}
    assert rates == {"0.5B": (640, 640, 16_000), "1.5": (1764, 1764, 44_100), "2": (640, 1920, 48_000)}
