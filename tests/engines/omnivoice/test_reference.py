"""Recordings of any rate, channels and length, as upstream prepares them, and those that are refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mizuoto_runtime.engines.omnivoice.codec_config import parse_codec_config
from mizuoto_runtime.engines.omnivoice.reference import prepare_reference
from mizuoto_runtime.engines.omnivoice.silence import remove_silence
from mizuoto_runtime.errors import InputError
from tests.golden.omnivoice.codec.cases import REFERENCES
from tests.golden.omnivoice.codec.signals import bursts

GOLDEN = Path(__file__).parents[2] / "golden" / "omnivoice" / "codec"
RECORDED: list[dict[str, Any]] = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))["references"]
SHOWN = 997
ONE_STEP = 1 / 32_768
CONFIG = parse_codec_config(
    {
        "acoustic_model_config": {"downsampling_ratios": [8, 5, 4, 2, 3], "upsampling_ratios": [8, 5, 4, 2, 3]},
        "target_bandwidths": [2],
    },
    source="test",
)


def digest(samples: Tensor) -> str:
    return hashlib.sha256(samples.numpy().tobytes()).hexdigest()[:32]


def tone(seconds: float, amplitude: float = 0.3, rate_hz: int = 24_000) -> Tensor:
    """A square wave, (1, length)."""
    steps = torch.arange(round(seconds * rate_hz))
    return (amplitude * (steps // 50 % 2 * 2 - 1)).float()[None]


@pytest.mark.parametrize("number", range(len(REFERENCES)))
def test_what_is_encoded_is_upstreams(number: int) -> None:
    case, recorded = REFERENCES[number], RECORDED[number]
    wave = bursts(case["length"], case["longest"], case["steps"], case["seed"], case["channels"])
    given = prepare_reference(wave, case["rate_hz"], CONFIG, preprocess=not case.get("plain", False))
    assert given.samples.shape == (1, recorded["length"]) and given.samples.dtype == torch.float32
    assert given.rms == pytest.approx(recorded["rms"], rel=1e-6)
    assert bool(given.notes) is (recorded["length"] < 0.96 * 24_000)
    assert given.samples[0, ::SHOWN].tolist() == pytest.approx(recorded["samples"], abs=ONE_STEP)
    if case["rate_hz"] == CONFIG.rate_hz:
        assert digest(given.samples) == recorded["sha256"]


def test_the_recordings_can_tell() -> None:
    """Some lose silence, some are raised, one is clipped."""
    lost = [
        case["length"] * 24_000 / case["rate_hz"] - recorded["length"]
        for case, recorded in zip(REFERENCES, RECORDED, strict=True)
        if not case.get("plain")
    ]
    assert sum(each > 2400 for each in lost) > 2
    assert sum(recorded["rms"] < 0.1 for recorded in RECORDED) > 2 and max(max(r["samples"]) for r in RECORDED) > 0.9


@pytest.mark.parametrize("shape", [(-1,), (1, -1), (1, 1, -1)])
def test_mono_in_every_shape(shape: tuple[int, ...]) -> None:
    given = prepare_reference(tone(0.6).reshape(shape), 24_000, CONFIG)
    assert torch.equal(given.samples, prepare_reference(tone(0.6), 24_000, CONFIG).samples)


def test_channels_are_averaged() -> None:
    stereo = prepare_reference(torch.cat((tone(1.0, 0.8), 0 * tone(1.0))), 24_000, CONFIG)
    assert stereo.rms == pytest.approx(0.4) and stereo.samples.abs().max() == pytest.approx(0.4, abs=ONE_STEP)


def test_of_a_batch_the_first_that_is_not_silent_is_taken() -> None:
    batch = torch.stack((0 * tone(1.0), tone(1.0), tone(1.0, 0.9)))
    given = prepare_reference(batch, 24_000, CONFIG)
    assert torch.equal(given.samples, prepare_reference(tone(1.0), 24_000, CONFIG).samples)
    assert given.notes == ("the reference is a batch of 3; number 2 was used",)


def test_a_quiet_recording_is_raised_and_its_level_told() -> None:
    given = prepare_reference(tone(1.0, 0.01), 24_000, CONFIG)
    assert given.rms == pytest.approx(0.01) and given.samples.abs().max() == pytest.approx(0.1, abs=ONE_STEP)
    loud = prepare_reference(tone(1.0, 0.5), 24_000, CONFIG, preprocess=False)
    assert torch.equal(loud.samples, tone(0.96 + 0.04, 0.5)[:, : 24_000 // 960 * 960])


def test_a_long_recording_is_used_whole_and_that_is_said() -> None:
    given = prepare_reference(tone(20.5), 24_000, CONFIG)
    (note,) = given.notes
    assert note.startswith("the reference is 20.5 s long; more than 20 s") and given.samples.shape[1] == 512 * 960


def test_silences_leave_what_is_to_be_kept() -> None:
    sound, pause = tone(0.5)[0].numpy(), np.zeros(24_000, dtype=np.float32)
    kept = remove_silence(
        np.concatenate((pause, sound, pause, sound, pause)), 24_000, middle_ms=200, lead_ms=100, trail_ms=200
    )
    assert len(kept) == pytest.approx(24 * (100 + 500 + 400 + 500 + 200), abs=24 * 40)


@pytest.mark.parametrize("length", [0, 1, 23, 24, 240, 4799, 4801])
def test_samples_of_any_number_are_taken(length: int) -> None:
    short = tone(0.3)[0, :length].numpy()
    kept = remove_silence(short, 24_000, middle_ms=200, lead_ms=100, trail_ms=200)
    assert abs(len(kept) - length) <= 24 and kept.dtype == np.float32
    assert len(remove_silence(0 * short, 24_000, middle_ms=200, lead_ms=100, trail_ms=200)) <= 24 * 200


@pytest.mark.parametrize(
    ("samples", "rate_hz", "message"),
    [
        (torch.zeros(1, 24_000), 24_000, r"is silent: its peak is 0\.0e\+00"),
        (torch.cat((tone(1.0), -tone(1.0))), 24_000, "is silent"),
        (tone(0.03), 24_000, r"720 samples of sound at 24,000 Hz, 960 are needed"),
        (torch.full((1, 24_000), float("inf")), 24_000, "aren't finite"),
        (torch.ones(1, 0), 24_000, "samples are needed"),
        (torch.ones(1, 1, 1, 5), 24_000, "samples are needed"),
        (torch.ones(1, 24_000), 10, "has 10 Hz"),
    ],
)
def test_what_is_no_use_is_refused(samples: Tensor, rate_hz: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare_reference(samples, rate_hz, CONFIG)
