"""Working memory is what was estimated or less, and not much less once inputs are long."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.engines.voxcpm import vae_layers
from mizuoto_runtime.engines.voxcpm.vae_config import VaeConfig
from mizuoto_runtime.engines.voxcpm.vae_decoder import SMALL_TILE_FRAMES, TILE_FRAMES, VaeDecoder
from mizuoto_runtime.engines.voxcpm.vae_encoder import VaeEncoder
from mizuoto_runtime.engines.voxcpm.vae_estimates import BASE_BYTES, decoder_bytes, encoder_bytes
from tests.engines.voxcpm.vae_models import REAL, SMALL, golden_config, with_random_weights
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")
CONFIGS = {"small": SMALL, **{name: golden_config(name) for name in ("first", "second", "plain")}}


def check(measured_bytes: int, estimated_bytes: int) -> None:
    print(f"measured {measured_bytes:,}, estimated {estimated_bytes:,} bytes")
    assert measured_bytes <= estimated_bytes <= 1.6 * measured_bytes + 1.1 * BASE_BYTES


@pytest.mark.parametrize("elements", [vae_layers.TILE_ELEMENTS, vae_layers.ACCELERATOR_TILE_ELEMENTS])
@pytest.mark.parametrize(("frames", "tile_frames"), [(1, TILE_FRAMES), (40, SMALL_TILE_FRAMES), (300, TILE_FRAMES)])
@pytest.mark.parametrize("name", CONFIGS)
def test_decoding(name: str, frames: int, tile_frames: int, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vae_layers, "TILE_ELEMENTS", elements)
    config = CONFIGS[name]
    decoder = with_random_weights(VaeDecoder(config))
    latents = torch.zeros(frames, config.latent_dim)
    with LiveBytes() as live:
        decoder.decode(latents, tile_frames=tile_frames)
    check(live.peak_bytes, decoder_bytes(config, frames, CPU, tile_frames))


@pytest.mark.parametrize("elements", [vae_layers.TILE_ELEMENTS, vae_layers.ACCELERATOR_TILE_ELEMENTS])
@pytest.mark.parametrize("frames", [1, 300])
@pytest.mark.parametrize("name", CONFIGS)
def test_encoding(name: str, frames: int, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vae_layers, "TILE_ELEMENTS", elements)
    config = CONFIGS[name]
    encoder = with_random_weights(VaeEncoder(config))
    samples = torch.zeros(frames * config.input_hop - 1)
    with LiveBytes() as live:
        encoder.encode(samples)
    check(live.peak_bytes, encoder_bytes(config, len(samples), CPU))


@pytest.mark.parametrize("name", REAL)
def test_a_minute_at_the_real_sizes_takes_little(name: str) -> None:
    config: VaeConfig = REAL[name]
    assert decoder_bytes(config, 1500, CPU) < 90e6
    assert decoder_bytes(config, 1500, CPU, SMALL_TILE_FRAMES) < 35e6
    assert encoder_bytes(config, 60 * config.input_rate_hz, CPU) < 160e6
