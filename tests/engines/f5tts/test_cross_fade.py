"""Chunks' waves joined, against upstream's."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.engines.f5tts.cross_fade import cross_fade
from mizuoto_runtime.engines.f5tts.reference import restore_level
from tests.engines.f5tts.recorded import GOLDEN, TOLERANCE, reference, shown, spoken
from tests.golden.f5tts import text_cases


@pytest.mark.parametrize("number", range(len(text_cases.SPEECHES)))
def test_the_joined_wave_is_upstreams(number: int) -> None:
    case, recorded = text_cases.SPEECHES[number], GOLDEN["speeches"][number]
    given = reference(case["recording"])
    waves = [restore_level(spoken(frames - given.frames), given.rms) for frames in recorded["sampled"]]
    joined = cross_fade(waves, case.get("cross_fade_duration", 0.15), 24_000)
    assert joined.dtype == torch.float32 and len(joined) == recorded["length"]
    assert shown(joined).tolist() == pytest.approx(recorded["samples"], abs=TOLERANCE)
    assert float(joined.double().square().mean()) == pytest.approx(recorded["mean_square"], rel=1e-5)


def test_slopes_are_straight_and_reach_their_ends() -> None:
    joined = cross_fade([torch.ones(10), -torch.ones(8)], 5 / 100, 100)
    assert torch.allclose(joined, torch.tensor([1.0] * 5 + [1.0, 0.5, 0.0, -0.5, -1.0] + [-1.0] * 3))


def test_a_single_wave_is_left_alone() -> None:
    wave = torch.randn(10)
    assert cross_fade([wave], 0.15, 24_000) is wave


def test_an_overlap_is_no_longer_than_what_overlaps() -> None:
    waves = [torch.ones(30), torch.ones(4), torch.ones(1), torch.ones(0), torch.ones(50)]
    joined = cross_fade(waves, 1.0, 20)
    assert len(joined) == 30 + 0 + 0 + 0 + 50 - 20
    assert torch.allclose(joined[:20], torch.ones(20)) and torch.isfinite(joined).all()


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_without_an_overlap_they_follow_one_another(seconds: float) -> None:
    waves = [torch.randn(7), torch.randn(5)]
    assert torch.equal(cross_fade(waves, seconds, 24_000), torch.cat(waves))


def test_waves_are_not_changed() -> None:
    waves = [torch.randn(100), torch.randn(100)]
    before = [wave.clone() for wave in waves]
    cross_fade(waves, 0.5, 100)
    assert all(torch.equal(wave, kept) for wave, kept in zip(waves, before, strict=True))


def test_nothing_to_join_is_an_error() -> None:
    with pytest.raises(ValueError, match="no waves"):
        cross_fade([], 0.15, 24_000)
