"""Resampling as torchaudio has it, at rates in use and at odd ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torchaudio.transforms import Resample

from mizuoto_runtime.audio import resample
from mizuoto_runtime.audio.resample import resample_hann

RATES_HZ = [8_000, 11_025, 12_000, 16_000, 22_050, 32_000, 44_100, 48_000, 88_200, 96_000, 192_000]


def noise(channels: int, length: int) -> Tensor:
    return torch.randn(channels, length, generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("length", [1, 7, 1_000, 20_011])
def test_it_is_torchaudios_sample_for_sample(rate_hz: int, length: int) -> None:
    samples = noise(2, length)
    for target_hz in (24_000, 16_000):
        assert torch.equal(resample_hann(samples, rate_hz, target_hz), Resample(rate_hz, target_hz)(samples))


@pytest.mark.parametrize("rate_hz", [8_001, 11_026])
def test_rates_that_share_no_divisor_are_computed_in_parts(rate_hz: int, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = noise(2, rate_hz * 2 + 17)
    whole = resample_hann(samples, rate_hz, 2_400)
    monkeypatch.setattr(resample, "MOST_TAPS", 0)
    parts = resample_hann(samples, rate_hz, 2_400)
    assert parts.shape == whole.shape and (parts - whole).abs().max() < 2e-6


def test_a_tone_stays_what_it_is_at_coprime_rates() -> None:
    steps = torch.arange(10_000, dtype=torch.float64)
    given, expected = (torch.sin(2 * math.pi * 440 / rate_hz * steps).float()[None] for rate_hz in (23_999, 24_000))
    result = resample_hann(given, 23_999, 24_000)
    assert (result[0, 100:9_900] - expected[0, 100:9_900]).abs().max() < 5e-3


def test_at_one_rate_nothing_happens() -> None:
    samples = noise(1, 50)
    assert resample_hann(samples, 44_100, 44_100) is samples
