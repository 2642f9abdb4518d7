"""The dummy engine: an unphased one, whose handles are placed for the whole call."""

import unicodedata

import pytest
import torch

from mizuoto_runtime.engines.dummy.phases import RATE_HZ, Oscillator, memory_required
from mizuoto_runtime.errors import InputError
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


def test_the_estimate_is_that_of_one_tone() -> None:
    short, long = (
        memory_required(None, text=text, tone_seconds=0.1, noise=0.0)  # type: ignore[arg-type]
        for text in ("a", "a" * 1000)
    )
    assert short == long >= 4 * 2400 * (4 + 1)


def test_more_than_memory_can_hold_is_refused_with_the_figures() -> None:
    session = Session(resolve(environment={}), ModelLibrary([]))
    request = SpeakRequest(text="a" * 100_000, options={"tone_seconds": 1.0})
    with pytest.raises(InputError, match="9,600,000,000 bytes"):
        session.speak(session.find("dummy", "tones"), request)


def test_every_character_has_a_tone() -> None:
    session = Session(resolve(environment={}), ModelLibrary([]))
    text = "".join(char for char in map(chr, range(0x20, 0x3000)) if unicodedata.category(char) not in ("Cc", "Cs"))
    request = SpeakRequest(text=text, options={"tone_seconds": 0.01})
    assert session.speak(session.find("dummy", "tones"), request).audio.samples.shape == (1, 240 * len(text))


def test_the_oscillator_never_clips() -> None:
    with torch.no_grad():
        assert Oscillator()(torch.linspace(0, 100, 10_000)).abs().max() <= 0.3 + 1e-6
