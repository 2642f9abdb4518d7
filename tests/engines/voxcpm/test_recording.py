"""A recording becomes what upstream reads of its file: torchaudio's function for the first generation, padded."""

from __future__ import annotations

import pytest
import torch
from torchaudio import functional

from mizuoto_runtime.engines.voxcpm.recording import prepare_recording
from mizuoto_runtime.engines.voxcpm.weights import Modules
from tests.golden.voxcpm.checkpoint import sound


@pytest.mark.parametrize("rate_hz", [8_000, 12_345, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("name", ["v0.5", "v1.5"])
def test_the_first_generations_are_resampled_as_by_torchaudios_function(
    modules: dict[str, Modules], name: str, rate_hz: int
) -> None:
    config = modules[name].config
    samples = sound(rate_hz // 4, 3, rate_hz=rate_hz, channels=2)
    made = prepare_recording(samples, rate_hz, config, before=True).samples
    expected = functional.resample(samples.mean(dim=0, keepdim=True), rate_hz, config.vae.input_rate_hz)[0]
    missing = len(made) - len(expected)
    assert 0 <= missing < config.patch * config.vae.input_hop
    assert len(made) % (config.patch * config.vae.input_hop) == 0
    assert torch.equal(made[:missing], torch.zeros(missing))
    assert (made[missing:] - expected).abs().max() < 1e-6
