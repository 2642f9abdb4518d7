"""Texts as they come from outside, refused with a reason if they can't be spoken."""

from __future__ import annotations

import re
import unicodedata

from ..errors import InputError

MAX_TEXT_CHARS = 1_000_000

_UNSPEAKABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
"""Control characters other than line breaks and tabs, and halves of surrogate pairs."""
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def checked_text(value: object) -> str:
    """`value` itself if it is a text that can be spoken.

    InputError for another type, an empty or blank text (invisible characters count as blank), half a surrogate pair, a
    control character, or more than MAX_TEXT_CHARS characters.
    """
    if not isinstance(value, str):
        raise InputError(f"the text is of type {type(value).__name__}; it must be a string")
    if len(value) > MAX_TEXT_CHARS:
        raise InputError(f"the text has {len(value):,} characters; {MAX_TEXT_CHARS:,} are the most, so split it")
    if unspeakable := _UNSPEAKABLE.search(value):
        code = ord(unspeakable[0])
        kind = "half a surrogate pair" if 0xD800 <= code <= 0xDFFF else "a control character"
        where = f"character {unspeakable.start() + 1:,} of the text (U+{code:04X})"
        raise InputError(f"{where} is {kind}; remove it")
    if not any(_is_visible(char) for char in value):
        raise InputError("the text is empty; write something to speak")
    return value


def refuse_half_pairs(text: str) -> None:
    """InputError for half a surrogate pair, which tokenizers can't take."""
    if half := _HALF_PAIR.search(text):
        raise InputError(f"a text holds half a surrogate pair (U+{ord(half[0]):04X}); remove it: {text[:40]!a}")


def _is_visible(char: str) -> bool:
    return not char.isspace() and unicodedata.category(char) != "Cf"
