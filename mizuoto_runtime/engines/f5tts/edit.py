"""Speech editing: spans of a recording that are spoken anew, the rest kept.

The arithmetic is that of the script `f5_tts/infer/speech_edit.py` of f5-tts 1.1.22: spans are cut out of the mel
spectrogram of the whole recording, and empty frames put in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import InputError
from .durations import MOST_FRAMES
from .reference import HOP, RATE_HZ

Span = tuple[float, float]
"""Start and end in seconds."""


@dataclass(frozen=True)
class Part:
    """Frames of the recording from `start` to `end` are kept; `empty` ones to speak anew follow."""

    start: int
    end: int
    empty: int


def to_frames(seconds: float) -> int:
    """The nearest number of mel frames, of two the even one."""
    return round(seconds * RATE_HZ / HOP)


def plan_edit(frames: int, spans: Sequence[Span], seconds: Sequence[float] | None = None) -> tuple[Part, ...]:
    """What is kept and what is spoken anew of a recording of so many mel frames; the last part is its tail.

    spans: in order. A span that ends where it starts inserts speech. seconds: how long each is to be afterwards; None:
    as long as before. InputError for spans that aren't in order or lie behind the end, for wrong lengths, and for more
    than MOST_FRAMES in all.
    """
    if not spans:
        raise InputError("there are no spans to edit; give at least one, as start and end in seconds")
    if seconds is not None and len(seconds) != len(spans):
        raise InputError(f"{len(seconds)} durations are given for {len(spans)} spans; give one for each, or none")
    parts = []
    position = 0
    for number, (start, end) in enumerate(spans):
        length = end - start if seconds is None else seconds[number]
        _check_span(number + 1, (start, end), length, position, frames)
        parts.append(Part(position, to_frames(start), to_frames(length)))
        position = to_frames(end)
    parts.append(Part(min(position, frames), frames, 0))
    total = sum(max(0, part.end - part.start) + part.empty for part in parts)
    if total >= MOST_FRAMES:
        raise InputError(
            f"the edited recording would have {total * HOP / RATE_HZ:,.0f} s, "
            f"{(MOST_FRAMES - 1) * HOP / RATE_HZ:,.0f} s are the most; shorten the recording or the durations"
        )
    return tuple(parts)


def _check_span(number: int, span: Span, length: float, position: int, frames: int) -> None:
    start, end = span
    what = f"span {number}, {start:g} to {end:g} s,"
    recording = f"the recording has {frames * HOP / RATE_HZ:.2f} s"
    if not 0 <= start <= end < float("inf"):
        raise InputError(f"{what} isn't one: a span starts at 0 s or later and ends no earlier than it starts")
    if not 0 <= length < float("inf"):
        raise InputError(f"{what} is to become {length:g} s long; 0 s or more are needed")
    if to_frames(start) < position:
        raise InputError(f"{what} starts before the one before it ends; put the spans in order, without overlaps")
    if to_frames(start) > frames:
        raise InputError(f"{what} starts behind the end: {recording}")


def cut(mel: Tensor, parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """mel: (frames, bands) of the whole recording → the condition (new frames, bands) and which frames of it are kept.

    Frames to speak anew are zeros.
    """
    pieces = [functional.pad(mel[part.start : part.end], (0, 0, 0, part.empty)) for part in parts]
    kept = [torch.arange(part.end - part.start + part.empty) < part.end - part.start for part in parts]
    return torch.cat(pieces), torch.cat(kept).to(mel.device)
