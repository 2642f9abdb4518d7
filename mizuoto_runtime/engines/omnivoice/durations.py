"""How many frames a text is spoken in, from the pace of a reference.

Each character has a weight, about how long it is spoken compared to a Latin letter; the weights, the blocks they are
given for and the lift of short texts are those of omnivoice 0.2.1 (omnivoice/utils/duration.py).
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from dataclasses import dataclass

SPACE, MARK, SIGN, NUMBER, LETTER, IDEOGRAPH = 0.2, 0.0, 0.5, 3.5, 1.0, 3.0
TATWEEL = 0x0640
BEYOND = 0x20000
SHORT_FRAMES = 50
USUAL_TEXT, USUAL_FRAMES = "Nice to meet you.", 25
"""The pace without a reference."""
_BLOCKS = (
    (0x058F, 1.0),
    (0x08FF, 1.5),
    (0x0DFF, 1.8),
    (0x0EFF, 1.5),
    (0x109F, 1.8),
    (0x10FF, 1.0),
    (0x11FF, 2.5),
    (0x139F, 3.0),
    (0x177F, 1.0),
    (0x17FF, 1.8),
    (0x18FF, 1.0),
    (0x1C7F, 1.8),
    (0x1CBF, 1.0),
    (0x1CFF, 1.8),
    (0x1EFF, 1.0),
    (0x30FF, 2.2),
    (0x312F, 3.0),
    (0x318F, 2.5),
    (0xA4CF, 3.0),
    (0xA7FF, 1.0),
    (0xA82F, 1.8),
    (0xA87F, 1.0),
    (0xA95F, 1.8),
    (0xA97F, 2.5),
    (0xAAFF, 1.8),
    (0xAB2F, 3.0),
    (0xABBF, 1.0),
    (0xABFF, 1.8),
    (0xD7AF, 2.5),
    (0xFAFF, 3.0),
    (0xFDFF, 1.5),
    (0xFE6F, 1.0),
    (0xFEFF, 1.5),
    (0xFFEF, 1.0),
)
"""The last code point of each range of scripts, and a character's weight in it."""
_LAST = tuple(last for last, _ in _BLOCKS)
_BY_CATEGORY = {"M": MARK, "P": SIGN, "S": SIGN, "Z": SPACE, "N": NUMBER}


@dataclass(frozen=True)
class Pace:
    """A text, and how many frames it was spoken in."""

    text: str = USUAL_TEXT
    frames: int = USUAL_FRAMES


def estimated_frames(text: str, pace: Pace, speed: float = 1.0) -> int:
    """How many frames `text` is spoken in at `speed` times the pace; 1 at least."""
    weight = _weight(pace.text)
    if not pace.frames or not weight:
        return 1
    frames = _weight(text) / (weight / pace.frames)
    if frames < SHORT_FRAMES:
        frames = SHORT_FRAMES * (frames / SHORT_FRAMES) ** (1.0 / 3)
    return max(1, int(frames / speed if speed != 1.0 else frames))


def _weight(text: str) -> float:
    return sum(map(_character_weight, text))


def _character_weight(character: str) -> float:
    code = ord(character)
    if code == TATWEEL:
        return MARK
    by_category = _BY_CATEGORY.get(unicodedata.category(character)[0])
    if by_category is not None:
        return by_category
    place = bisect_left(_LAST, code)
    if place < len(_BLOCKS):
        return _BLOCKS[place][1]
    return IDEOGRAPH if code > BEYOND else LETTER
