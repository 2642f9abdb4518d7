"""The dummy engine: an unphased one, whose handles are placed for the whole call."""

import pytest
import torch

from mizuoto_runtime.engines.dummy.phases import RATE_HZ, Oscillator, memory_required
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve


def spectrum_peak_hz(samples: torch.Tensor) -> float:
    spectrum = torch.fft.rfft(samples * torch.hann_window(len(samples))).abs()
    return float(spectrum.argmax()) * RATE_HZ / len(samples)


def test_later_letters_sound_higher() -> None:
    session = Session(resolve(environment={}), ModelLibrary([]))
    files = session.find("dummy", "tones")
    audio = session.speak(files, SpeakRequest(text="ac", options={"tone_seconds": 1.0})).audio
    low, high = audio.samples[0].split(RATE_HZ)
    assert spectrum_peak_hz(high) / spectrum_peak_hz(low) == pytest.approx(2 ** (2 / 12), rel=0.01)


def test_the_estimate_covers_what_a_tone_needs() -> None:
    needed = memory_required(None, text="abc", tone_seconds=0.1, noise=0.0)  # type: ignore[arg-type]
    assert needed >= 4 * 2400 * 3


def test_the_oscillator_never_clips() -> None:
    with torch.no_grad():
        assert Oscillator()(torch.linspace(0, 100, 10_000)).abs().max() <= 0.3 + 1e-6
