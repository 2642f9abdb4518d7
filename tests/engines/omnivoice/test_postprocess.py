"""What is done to decoded speech before it is heard, as upstream does it, sample for sample."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mizuoto_runtime.engines.omnivoice.postprocess import finish, join_chunks
from tests.golden.omnivoice.codec.cases import LONGEST, OUTPUTS
from tests.golden.omnivoice.codec.signals import bursts

GOLDEN = Path(__file__).parents[2] / "golden" / "omnivoice" / "codec"
RECORDED: list[dict[str, Any]] = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))["outputs"]
SHOWN = 997
RATE_HZ = 24_000


@pytest.mark.parametrize("number", range(len(OUTPUTS)))
def test_what_is_heard_is_upstreams(number: int) -> None:
    case, recorded = OUTPUTS[number], RECORDED[number]
    lengths = [960 * frames for frames in case["frames"]]
    wave = bursts(sum(lengths), LONGEST, case["steps"], case["seed"])
    heard = finish(
        join_chunks(list(wave.split(lengths, dim=1)), RATE_HZ),
        RATE_HZ,
        rms=case["rms"],
        trim=case.get("postprocess_output", True),
        pad_seconds=case.get("pad_duration", 0.1),
        fade_seconds=case.get("fade_duration", 0.1),
    )
    assert heard.shape == (1, recorded["length"]) and heard.dtype == torch.float32
    assert heard[0, ::SHOWN].tolist() == pytest.approx(recorded["samples"], abs=1e-6)
    assert hashlib.sha256(heard[0].numpy().tobytes()).hexdigest()[:32] == recorded["sha256"]


def test_the_recordings_can_tell() -> None:
    """Some lose silence, one is empty, one clips."""
    plain = [960 * sum(case["frames"]) + 4800 + 2400 * (len(case["frames"]) - 1) for case in OUTPUTS]
    lost = [length - recorded["length"] for length, recorded in zip(plain, RECORDED, strict=True)]
    assert sum(each > 4800 for each in lost) > 2 and any(recorded["length"] == 0 for recorded in RECORDED)
    assert max(max(recorded["samples"], default=0) for recorded in RECORDED) > 0.9


def test_one_chunk_is_left_alone() -> None:
    chunk = torch.ones(1, 960)
    assert join_chunks([chunk], RATE_HZ) is chunk


def test_the_decoded_wave_is_not_changed() -> None:
    first, second = torch.ones(1, 9600), torch.ones(1, 960)
    joined = join_chunks([first, second], RATE_HZ)
    finish(first, RATE_HZ, rms=0.05, trim=False)
    finish(first, RATE_HZ, rms=None)
    assert bool((first == 1).all()) and bool((second == 1).all()) and joined.shape == (1, 9600 + 2400 + 960)


@pytest.mark.parametrize("rms", [None, 0.05, 0.5])
def test_silence_becomes_empty(rms: float | None) -> None:
    assert finish(torch.zeros(1, 48_000), RATE_HZ, rms=rms).shape == (1, 0)
    assert finish(torch.zeros(1, 0), RATE_HZ, rms=rms, trim=False).shape == (1, 0)
    kept = finish(torch.zeros(1, 48_000), RATE_HZ, rms=rms, trim=False)
    assert kept.shape == (1, 48_000 + 4800) and not kept.any()
