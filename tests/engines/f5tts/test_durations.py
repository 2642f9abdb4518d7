"""Lengths of chunks in mel frames, against upstream's."""

from __future__ import annotations

import pytest

from mizuoto_runtime.engines.f5tts.durations import (
    MOST_FRAMES,
    chunk_frames,
    fixed_frames,
    plan_frames,
    sampled_frames,
    share_seconds,
)
from mizuoto_runtime.engines.f5tts.text import (
    chunk_text,
    finish_reference_text,
    max_chars,
    space_reference_text,
    to_tokens,
)
from tests.engines.f5tts.recorded import GOLDEN, reference
from tests.golden.f5tts import text_cases

NUMBERS = range(len(text_cases.SPEECHES))


@pytest.mark.parametrize("number", NUMBERS)
def test_chunks_and_their_lengths_are_upstreams(number: int) -> None:
    case, recorded = text_cases.SPEECHES[number], GOLDEN["speeches"][number]
    given = reference(case["recording"])
    speed = case.get("speed", 1.0)
    finished = finish_reference_text(case["reference_text"])
    chunks = chunk_text(case["text"], max_chars(finished, given.seconds, speed))
    before = space_reference_text(finished)
    tokens = [to_tokens(before + chunk) for chunk in chunks]
    assert ["".join(row) for row in tokens] == recorded["texts"]
    frames = plan_frames(
        chunks,
        given.frames,
        before,
        speed=speed,
        fix_duration=case.get("fix_duration"),
        cross_fade_seconds=case.get("cross_fade_duration", 0.15),
    )
    assert frames == recorded["frames"]
    sampled = [sampled_frames(count, len(row), given.frames + 1) for count, row in zip(frames, tokens, strict=True)]
    assert sampled == recorded["sampled"]


def test_the_cases_have_one_chunk_and_several() -> None:
    assert {len(recorded["frames"]) > 1 for recorded in GOLDEN["speeches"]} == {False, True}


def test_a_short_text_has_a_speed_of_its_own() -> None:
    assert chunk_frames(100, "0123456789", "012345678", 5.0) == 100 + int(100 / 10 * 9 / 0.3)
    assert chunk_frames(100, "0123456789", "九九九", 5.0) == 100 + int(100 / 10 * 9 / 0.3)
    assert chunk_frames(100, "0123456789", "0123456789", 5.0) == 120


def test_a_fixed_length_is_cut_to_whole_frames() -> None:
    assert [fixed_frames(seconds) for seconds in (1.0, 0.0, 2.5, 0.0106, 0.0107)] == [93, 0, 234, 0, 1]


def test_chunks_share_what_the_reference_leaves() -> None:
    reference_seconds = 93 * 256 / 24_000
    assert share_seconds(8.0, 93, ["one"], 0.15) == [8.0]
    shares = share_seconds(8.0, 93, ["0123456789", "01234", "九9四五"], 0.15)
    assert sum(shares) == pytest.approx(8.0 - reference_seconds + 2 * 0.15 + 3 * reference_seconds)
    assert shares[0] - reference_seconds == pytest.approx(2 * (shares[1] - reference_seconds))


@pytest.mark.parametrize(
    ("frames", "tokens", "condition", "sampled"),
    [(500, 40, 101, 500), (50, 40, 101, 102), (50, 300, 101, 301), (102, 101, 101, 102), (99_999, 1, 1, MOST_FRAMES)],
)
def test_something_is_always_sampled(frames: int, tokens: int, condition: int, sampled: int) -> None:
    assert sampled_frames(frames, tokens, condition) == sampled
