"""Where a text may be cut without breaking a character that a reader sees as one.

A cut-down form of the boundary rules of Unicode's annex 29, from `unicodedata` alone: it may refuse a boundary that the
annex allows, and allows none inside a combining sequence, a syllable of Hangul jamo, an emoji sequence or a conjunct.
"""

from __future__ import annotations

import unicodedata

_JOINERS = frozenset("\u200c\u200d")
_VIRAMA_CLASS = 9
_REGIONAL = ("\U0001f1e6", "\U0001f1ff")


def is_boundary(text: str, position: int, start: int = 0) -> bool:
    """Whether `text` may be cut before `text[position]`, where it is known that it may be before `text[start]`."""
    if position <= start or position >= len(text):
        return True
    before, after = text[position - 1], text[position]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    if before in _JOINERS or _extends(after) or _half_pair(before, after):
        return False
    if _within(after, _REGIONAL) and _within(before, _REGIONAL):
        return _regional_run(text, position, start) % 2 == 0
    return not (_joins_hangul(before, after) or unicodedata.combining(before) == _VIRAMA_CLASS)


def _extends(char: str) -> bool:
    """Marks, joiners, skin tones and tag characters belong to what stands before them."""
    if char in _JOINERS or "\U0001f3fb" <= char <= "\U0001f3ff" or "\U000e0020" <= char <= "\U000e007f":
        return True
    return unicodedata.category(char).startswith("M")


def _half_pair(before: str, after: str) -> bool:
    return "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"


def _within(char: str, ends: tuple[str, str]) -> bool:
    return ends[0] <= char <= ends[1]


def _regional_run(text: str, position: int, start: int) -> int:
    """How many regional indicators (halves of flags) stand together before `position`, from `start` on."""
    first = position
    while first > start and _within(text[first - 1], _REGIONAL):
        first -= 1
    return position - first


def _joins_hangul(before: str, after: str) -> bool:
    """A leading consonant joins what follows; a vowel or a final consonant joins what stands before."""
    if "\u1160" <= after <= "\u11ff" or "\ud7b0" <= after <= "\ud7fb":
        return True
    leading = "\u1100" <= before <= "\u115f" or "\ua960" <= before <= "\ua97c"
    return leading and ("\u1100" <= after <= "\u115f" or "\ua960" <= after <= "\ua97c" or "\uac00" <= after <= "\ud7a3")
