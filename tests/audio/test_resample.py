"""Resampling as torchaudio and as soxr have it, at rates in use and at odd ones."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import Tensor
from torchaudio import functional
from torchaudio.transforms import Resample

from mizuoto_runtime.audio import resample
from mizuoto_runtime.audio.resample import resample_hann, resample_soxr
from mizuoto_runtime.errors import MissingDependency

RATES_HZ = [8_000, 11_025, 12_000, 16_000, 22_050, 32_000, 44_100, 48_000, 88_200, 96_000, 192_000]


def noise(channels: int, length: int) -> Tensor:
    return torch.randn(channels, length, generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("length", [1, 7, 1_000, 20_011])
def test_it_is_torchaudios_sample_for_sample(rate_hz: int, length: int) -> None:
    samples = noise(2, length)
    for target_hz in (24_000, 16_000):
        assert torch.equal(resample_hann(samples, rate_hz, target_hz), Resample(rate_hz, target_hz)(samples))


@pytest.mark.parametrize("rate_hz", [*RATES_HZ, 12_345])
def test_it_is_its_functions_too_whose_filter_is_less_exact(rate_hz: int) -> None:
    samples = noise(2, 3_000)
    for target_hz in (22_050, 24_000, 16_000, 44_100):
        expected = functional.resample(samples, rate_hz, target_hz)
        assert (resample_hann(samples, rate_hz, target_hz, precise=False) - expected).abs().max() < 2e-6


@pytest.mark.parametrize("rate_hz", [8_001, 11_026])
@pytest.mark.parametrize("more", [-1, 0, 1, 17])
def test_rates_that_share_no_divisor_are_computed_in_parts(
    rate_hz: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = noise(2, rate_hz * 2 + more)
    whole = resample_hann(samples, rate_hz, 2_400)
    monkeypatch.setattr(resample, "MOST_TAPS", 0)
    parts = resample_hann(samples, rate_hz, 2_400)
    assert parts.shape == whole.shape and (parts - whole).abs().max() < 2e-6


def test_a_tone_stays_what_it_is_at_coprime_rates() -> None:
    steps = torch.arange(10_000, dtype=torch.float64)
    given, expected = (torch.sin(2 * math.pi * 440 / rate_hz * steps).float()[None] for rate_hz in (23_999, 24_000))
    result = resample_hann(given, 23_999, 24_000)
    assert (result[0, 100:9_900] - expected[0, 100:9_900]).abs().max() < 5e-3


@pytest.mark.parametrize("rate_hz", [7_999, 44_101])
def test_whole_seconds_at_a_rate_that_shares_no_divisor(rate_hz: int) -> None:
    assert resample_hann(noise(1, 2 * rate_hz), rate_hz, 24_000).shape == (1, 48_000)


def tone(rate_hz: int, tone_hz: float) -> Tensor:
    """Half a second."""
    steps = torch.arange(rate_hz // 2, dtype=torch.float64)
    return (0.5 * torch.sin(2 * math.pi * tone_hz / rate_hz * steps)).float()


@pytest.mark.parametrize("rate_hz", [4_000, 47_999, 384_000, *RATES_HZ])
@pytest.mark.parametrize("target_hz", [16_000, 24_000])
def test_soxr_keeps_a_tone(rate_hz: int, target_hz: int) -> None:
    given, expected = tone(rate_hz, 1_000), tone(target_hz, 1_000)
    resampled = resample_soxr(given, rate_hz, target_hz)
    assert len(resampled) == math.ceil(len(given) * (target_hz / rate_hz))
    inner = slice(1_000, target_hz // 2 - 1_000)
    assert (resampled[inner] - expected[inner]).abs().max() < 1e-6


def test_soxr_lets_nothing_through_that_the_new_rate_cannot_hold() -> None:
    assert resample_soxr(tone(48_000, 12_500), 48_000, 24_000)[500:-500].abs().max() < 1e-6


@pytest.mark.parametrize("length", [1, 2, 7])
def test_soxr_takes_the_shortest_recordings(length: int) -> None:
    for rate_hz in (1_000, 8_001, 44_100, 384_000):
        assert len(resample_soxr(torch.ones(length), rate_hz, 24_000)) == math.ceil(length * (24_000 / rate_hz))


def test_without_soxr_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(MissingDependency, match=r"44,100 Hz needs the package soxr.*pip install soxr"):
        resample_soxr(noise(1, 50)[0], 44_100, 24_000)


def test_at_one_rate_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = noise(1, 50)
    assert resample_hann(samples, 44_100, 44_100) is samples
    monkeypatch.setitem(sys.modules, "soxr", None)
    assert resample_soxr(samples, 44_100, 44_100) is samples
