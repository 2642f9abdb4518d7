"""Which punctuation ends a clause of text, by the rules of espeak-ng 1.52 (its `readclause.c` and `PropList.txt`).

espeak-ng says how far it read for a clause, but not why it stopped there; `ending` works that out from what was read.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Ending(NamedTuple):
    """How a clause ends. mark: one of `.` `?` `!` `,` `:` `;`, or empty for any other end."""

    mark: str
    ends_sentence: bool


PLAIN_END = Ending("", False)
SENTENCE_END = Ending("", True)

_MARKED = {
    ".": "2E 6D4 701 704 1362 166E 1803 1809 2488-249B 2CF9 2CFE 2E33 2E3C A4FF A60E A6F3 FE12 FE52 FF61 16AF5 "
    "1BC9F 1DA88 1F100 E002E",
    "?": "3F 37E 61F 709 1367 1945 2047 2753-2754 2CFA-2CFB A60F A6F7 FE16 FE56 11143 1E95F E003F",
    "!": "21 703 7F9 1944 203C 2755 2757 2762-2763 FE15 FE57 1E95E E0021",
    ",": "2C 55D 60C 702 7F8 F14 1363 1802 1808 2E32 2E34 2E41 A4FE A60D A6F5 FE10-FE11 FE50-FE51 FF64 1144D "
    "1DA87 1F101-1F10A E002C",
    ":": "3A 706-707 1365-1366 1804 2982 A6F4 FE13 FE55 12471-12472 1DA8A E003A",
    ";": "3B 387 61B 708 1364 2013-2014 204F 2E35 2E3A-2E3B A6F6 FE14 FE31-FE32 FE54 1DA89 E003B",
}
_NO_SPACE_NEEDED = {
    SENTENCE_END: "589 964 DF4 F0D 3002 FF01 FF0E FF1F",
    PLAIN_END: "A1 BF EAF 1801 2026 22EE-22F1 3001 FE19 FF0C FF1A-FF1B",
}
_PARAGRAPH_MARKS = "700 965 F0E 10FB 1368 2029"
_INSIDE_WORD_MARKS = "55B-55C 55E"


def _chars(ranges: str) -> str:
    """The characters of code points and ranges of them, in hexadecimal."""
    ends = [[int(end, 16) for end in item.split("-")] for item in ranges.split()]
    return "".join(chr(code) for first, *last in ends for code in range(first, (last or [first])[0] + 1))


_ENDINGS: dict[str, Ending] = {
    **{char: Ending(mark, mark in ".?!") for mark, codes in _MARKED.items() for char in _chars(codes)},
    **{char: end for end, codes in _NO_SPACE_NEEDED.items() for char in _chars(codes)},
    **dict.fromkeys(_chars(_PARAGRAPH_MARKS), SENTENCE_END),
    **dict.fromkeys(_chars(_INSIDE_WORD_MARKS), PLAIN_END),
}
_MARKS = "".join(_ENDINGS)
_CLOSES_WITHOUT_SPACE = frozenset(_chars(" ".join(_NO_SPACE_NEEDED.values())))
_NEVER_CLOSE = frozenset(_chars(_INSIDE_WORD_MARKS))
_SPACES = "\t\n\v\f\r \x85\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
_BRACKETS = frozenset("()[]{}<>\"'`«»《》" + _chars("2014-201F"))
_EMPHASIZED_WORD = re.compile(f"[{_chars(_INSIDE_WORD_MARKS)}][\\w\u00ad\u200c]*$")
_ROMAN_DIGITS = frozenset("IVXL")

_MAY_BE_CUT_BYTES = 600  # espeak-ng also stops where its buffer of 800 bytes is nearly full


def ending(read: str, following: str, *, roman_ordinals: bool) -> Ending:
    """How the clause ends that espeak-ng just read.

    read: everything that it took in for the clause, trailing spaces included. following: the character after that,
    which begins the next clause; empty at the end of the text. roman_ordinals: in this language `IV.` is an ordinal
    number, whose dot ends nothing.
    """
    body = read.rstrip(_SPACES)
    gap = read[len(body) :]
    head = body.rstrip(_MARKS)
    marks = body[len(head) :]
    at_end = not following
    if gap.count("\n") > 1 or (not marks and "\u2029" in gap):
        return SENTENCE_END
    if not marks:
        return SENTENCE_END if at_end else PLAIN_END
    mark = "…" if marks.startswith("...") else marks[0]
    unsure = at_end or len(read.encode()) > _MAY_BE_CUT_BYTES
    if unsure and _EMPHASIZED_WORD.search(head):
        mark = marks[1:2]  # the one before closes the emphasis
    if unsure and not _closes(head, mark, gap, following, roman_ordinals=roman_ordinals):
        return SENTENCE_END if at_end else PLAIN_END
    return _ENDINGS[mark]


def _closes(head: str, mark: str, gap: str, following: str, *, roman_ordinals: bool) -> bool:
    """Whether espeak-ng takes `mark`, after `head` and before `gap` and `following`, as the end of a clause."""
    if not mark or mark in _NEVER_CLOSE:
        return False
    if following and not gap and following not in _BRACKETS and mark not in _CLOSES_WITHOUT_SPACE:
        return False
    if "\n" in gap:
        return True
    if mark == "." and (following.islower() or (roman_ordinals and _ends_in_roman_number(head))):
        return False
    return any(char.isalnum() for char in head + mark)


def _ends_in_roman_number(head: str) -> bool:
    before = head[-2:-1]
    return head[-1:] in _ROMAN_DIGITS and (not before or before in _ROMAN_DIGITS or before in _SPACES)
