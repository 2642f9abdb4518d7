"""Spans and durations as people write them: `1.42-2.44, 4.04-4.9` or upstream's `[[1.42, 2.44], [4.04, 4.9]]`."""

from __future__ import annotations

import re

from ...errors import InputError
from .edit import Span

_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_SPANS = re.compile(r"[\s\d.,;\-–\[\]()]*")
_DURATIONS = re.compile(r"[\s\d.,;\[\]()]*")


def parse_spans(text: str) -> tuple[Span, ...]:
    """Starts and ends in seconds. InputError if `text` is something else."""
    numbers = _numbers(text, _SPANS)
    if numbers is None or not numbers or len(numbers) % 2:
        raise InputError(f"the spans are {text!r}; write the start and end of each in seconds, as 1.42-2.44, 4.04-4.9")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def parse_durations(text: str) -> tuple[float, ...] | None:
    """Seconds; None if there are none. InputError if `text` is something else."""
    numbers = _numbers(text, _DURATIONS)
    if numbers is None:
        raise InputError(f"the durations are {text!r}; write seconds, one number for each span, as 1.2, 1")
    return tuple(numbers) or None


def _numbers(text: str, form: re.Pattern[str]) -> list[float] | None:
    return [float(number) for number in re.findall(_NUMBER, text)] if form.fullmatch(text) else None
