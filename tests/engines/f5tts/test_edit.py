"""Spans to speak anew, against upstream's script."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.engines.f5tts.durations import sampled_frames
from mizuoto_runtime.engines.f5tts.edit import Span, cut, plan_edit, to_frames
from mizuoto_runtime.errors import InputError
from tests.engines.f5tts.recorded import GOLDEN
from tests.golden.f5tts import text_cases

FRAMES = int(text_cases.EDITED_SECONDS * 24_000) // 256 + 1


@pytest.mark.parametrize("number", range(len(text_cases.EDITS)))
def test_the_condition_is_upstreams(number: int) -> None:
    case, recorded = text_cases.EDITS[number], GOLDEN["edits"][number]
    mel = torch.arange(1.0, FRAMES + 1)[:, None].expand(-1, 3)
    condition, kept = cut(mel, plan_edit(FRAMES, case["spans"], case["seconds"]))
    assert (condition[:, 0] - 1).long().tolist() == recorded["sources"]
    assert "".join("01"[int(value)] for value in kept) == recorded["kept"]
    assert len(condition) == recorded["frames"]
    assert sampled_frames(len(condition), 46, len(condition)) == recorded["sampled"]


def test_frames_are_rounded_to_the_nearest_and_halves_to_the_even() -> None:
    assert [to_frames(frames * 256 / 24_000) for frames in (0.4, 0.5, 1.5, 2.5, 2.6)] == [0, 0, 2, 2, 3]


def test_what_is_kept_is_not_changed() -> None:
    mel = torch.randn(100, 4)
    condition, kept = cut(mel, plan_edit(100, [(0.2, 0.4)], [0.3]))
    assert torch.equal(condition[kept], torch.cat((mel[:19], mel[38:])))
    assert not condition[~kept].any() and int((~kept).sum()) == 28


@pytest.mark.parametrize(
    ("spans", "seconds", "message"),
    [
        ([], None, "no spans"),
        ([(0.1, 0.2)], [1.0, 2.0], "2 durations are given for 1 spans"),
        ([(0.5, 0.2)], None, "span 1, 0.5 to 0.2 s, isn't one"),
        ([(-0.1, 0.2)], None, "isn't one"),
        ([(float("nan"), 0.2)], None, "isn't one"),
        ([(0.1, float("inf"))], None, "isn't one"),
        ([(0.1, 0.5), (0.4, 0.6)], None, "span 2, .* starts before the one before it ends"),
        ([(0.6, 0.7), (0.1, 0.2)], None, "put the spans in order"),
        ([(1.2, 1.3)], None, r"starts behind the end: the recording has 1\.07 s"),
        ([(0.1, 0.2)], [-1.0], "is to become -1 s long"),
        ([(0.1, 0.2)], [float("nan")], "is to become nan s long"),
        ([(0.1, 0.2)], [99_999.0], r"would have 100,000 s, 699 s are the most"),
        ([(0.1, 0.2)], [1e300], "are the most"),
        ([(0.1, 0.2), (0.3, 0.4)], [400.0, 400.0], "would have 801 s"),
    ],
)
def test_spans_that_are_none_are_refused(spans: list[Span], seconds: list[float] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_edit(100, spans, seconds)
