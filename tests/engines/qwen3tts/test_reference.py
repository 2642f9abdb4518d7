"""Recordings of any rate, channels, batch and length, and those that are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mizuoto_runtime.engines.qwen3tts.reference import LONGEST_SECONDS, prepare_reference
from mizuoto_runtime.errors import InputError


def tone(seconds: float, rate_hz: int, tone_hz: float = 440.0) -> torch.Tensor:
    steps = torch.arange(round(seconds * rate_hz), dtype=torch.float64)
    return (0.5 * torch.sin(2 * math.pi * tone_hz / rate_hz * steps)).float()


def test_a_mono_recording_at_the_rate_is_left_alone() -> None:
    samples = tone(1.0, 24_000)
    for shaped in (samples, samples[None], samples[None, None]):
        reference = prepare_reference(shaped, 24_000)
        assert torch.equal(reference.samples, samples) and reference.notes == ()


def test_channels_are_averaged_as_numpy_does() -> None:
    samples = torch.randn(3, 30_000, generator=torch.Generator().manual_seed(1))
    reference = prepare_reference(samples, 24_000)
    assert np.array_equal(reference.samples.numpy(), np.mean(samples.numpy().T, axis=-1))


@pytest.mark.parametrize("rate_hz", [8001, 44_101, 47_999])
def test_odd_rates_are_resampled(rate_hz: int) -> None:
    samples = prepare_reference(tone(0.3, rate_hz), rate_hz).samples
    assert abs(len(samples) - 7200) <= 1
    assert (samples[500:6700] - tone(0.3, 24_000)[500:6700]).abs().max() < 1e-6


def test_of_a_long_recording_the_part_with_most_speech_is_taken() -> None:
    quiet = 0.001 * tone(30.0, 24_000)
    speech = tone(LONGEST_SECONDS, 24_000)
    reference = prepare_reference(torch.cat((quiet, speech, quiet)), 24_000)
    assert torch.equal(reference.samples, speech)
    (note,) = reference.notes
    assert "120 s long; 60 s of it, from 30.0 s on, were used" in note and "transcript" in note


def test_of_a_short_recording_it_is_said() -> None:
    reference = prepare_reference(tone(0.3, 24_000), 24_000)
    assert reference.notes == ("the reference has 0.30 s of sound; 3 to 15 s are best",)


def test_of_a_batch_the_first_that_is_not_silent_is_taken() -> None:
    batch = torch.stack((torch.zeros(2, 24_000), tone(1.0, 24_000).expand(2, -1), torch.ones(2, 24_000)))
    reference = prepare_reference(batch, 24_000)
    assert torch.equal(reference.samples, tone(1.0, 24_000))
    assert reference.notes == ("the reference is a batch of 3; number 2 was used",)


@pytest.mark.parametrize(
    ("samples", "rate_hz", "message"),
    [
        (torch.zeros(24_000), 24_000, r"is silent: its peak is 0\.0e\+00"),
        (1e-4 * torch.ones(2, 1, 48_000), 48_000, "is silent.*somebody speaks"),
        (torch.ones(1000), 24_000, r"is 0\.04 s long; 0\.1 s are the least"),
        (torch.full((24_000,), float("nan")), 24_000, "aren't finite"),
        (torch.ones(0), 24_000, "samples are needed"),
        (torch.ones(1, 1, 1, 5), 24_000, "samples are needed"),
        (torch.ones(24_000), 10, "has 10 Hz"),
    ],
)
def test_what_is_no_use_is_refused(samples: torch.Tensor, rate_hz: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare_reference(samples, rate_hz)


def test_the_recording_is_not_changed() -> None:
    samples = tone(0.5, 44_100).expand(2, -1).contiguous()
    before = samples.clone()
    prepare_reference(samples, 44_100)
    assert torch.equal(samples, before)
