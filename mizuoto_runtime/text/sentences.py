"""Text of any script, split into sentences that can be spoken one by one.

Terminators are those of Unicode's property Sentence_Terminal. When in doubt two sentences stay together: a split never
falls where espeak-ng would go on with a sentence, so that the pieces' phonemes are those of the whole paragraph.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from .abbreviations import ABBREVIATIONS
from .graphemes import is_boundary

_SPACED = ".!?\u037e؟۔‼⁇⁈⁉"
_UNSPACED = (
    "\u0589\u061d\u061e\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362\u1367\u1368\u166e"
    "\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f"
    "\u1c3b\u1c3c\u1c7e\u1c7f\u2cf9-\u2cfb\u203d\u2e2e\u2e3c\u2e53\u2e54\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876"
    "\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57\uff01"
    "\uff0e\uff1f\uff61\U00010a56\U00010a57\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048"
    "\U000110be-\U000110c1\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238"
    "\U00011239\U0001123b\U0001123c\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7"
    "\U00011641\U00011642\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c"
    "\U00011c41\U00011c42\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38"
    "\U00016b44\U00016e98\U0001bc9f\U0001da88"
)
_ELLIPSES = "…⋯"
_CLOSERS = "\"'`”’“‘»›«‹」』）】〉》〕〗〙〛］｝｠｣﹂﹄)]}>"
_OPENERS = "\"'`“‘«„‚»「『（【〈《〔([{¿¡—–*_"
_CLOSERS_AND_SPACE = _CLOSERS + " \u00a0\u202f\t\n"
_CLOSER = f"[{re.escape(_CLOSERS)}]"
_CLOSERS_AFTER_SPACED_MARK = frozenset("\"'`”’“‘»«)]}>")

_END = re.compile(
    rf"(?P<marks>[{re.escape(_SPACED)}{_UNSPACED}{_ELLIPSES}]+)(?P<closers>{_CLOSER}*)(?P<gap>\s*)"
    r"|(?P<blank_line>\n[^\S\n]*\n\s*|\u2029\s*)"
)
_UNSPACED_MARK = re.compile(f"[{_UNSPACED}]")
_CLAUSE_END = re.compile(rf"(?:[,;:،؛·](?={_CLOSER}*\s)|[、，；：﹐﹑﹔﹕､၊፣፤፥—―⸺…]){_CLOSER}*")
_SPACES = re.compile(r"\s+")
_ROMAN_NUMBER = re.compile("[IVXLCDM]{1,6}")

_WORD_CHARS_LOOKED_BACK = 24
_SHORTEST_YEAR_DIGITS = 4


class _Break(NamedTuple):
    """A place where the text may be split: a piece ends before `end`, the next begins at `resume`."""

    end: int
    resume: int
    sure: bool


def split_sentences(text: str, *, max_chars: int = 400) -> list[str]:
    """The sentences of `text`, in order, without the spaces around them: joined, they are the text but for spaces.

    A blank line always ends a sentence; a single line break is a space. Nothing inside `[[ ]]` on one line is split. A
    sentence longer than `max_chars` is cut: at a less certain sentence end, else at clause punctuation, else at a
    space, else between characters; only a `[[ ]]` block may be longer. Time is linear in the text's length. A piece may
    hold no letter at all (an emoji, `* * *`). A blank text gives no pieces.
    """
    if max_chars < 1:
        raise ValueError(f"max_chars is {max_chars}; it must be at least 1")
    source = _Source(text)
    pieces: list[str] = []
    start = 0
    doubtful: list[int] = []
    for stop in (*source.breaks(), _Break(len(text), len(text), sure=True)):
        if not stop.sure:
            doubtful.append(stop.end)
            continue
        pieces.extend(_cut(source, start, stop.end, doubtful, max_chars))
        start = stop.resume
        doubtful = []
    return pieces


class _Source:
    """A text, and the `[[ ]]` blocks in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        blocks = list(_blocks(text))
        self._block_starts = [start for start, _ in blocks]
        self._block_stops = [stop for _, stop in blocks]

    def block_at(self, position: int) -> tuple[int, int] | None:
        """The block that a cut at `position` would break."""
        index = bisect_right(self._block_starts, position - 1) - 1
        if index < 0 or position >= self._block_stops[index]:
            return None
        return self._block_starts[index], self._block_stops[index]

    def breaks(self) -> Iterator[_Break]:
        """Every place outside blocks where a sentence may end."""
        for match in _END.finditer(self.text):
            end = match.start() if match["blank_line"] else match.end("closers")
            inside_word = not (match["gap"] or match["blank_line"] or _UNSPACED_MARK.match(match["marks"]))
            if not inside_word and self.block_at(match.start() + 1) is None:
                sure = _is_sure(self.text, match) and not self._touches_block(end, match.end())
                yield _Break(end, match.end(), sure)

    def _touches_block(self, end: int, resume: int) -> bool:
        """Hand-written phonemes belong to the sentence before and after them."""
        return self.text.endswith("]]", 0, end) or self.text.startswith("[[", resume)


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Where each `[[ ]]` begins and stops; one that isn't closed on its line is none."""
    start = text.find("[[")
    while start >= 0:
        line_stop = text.find("\n", start)
        line_stop = len(text) if line_stop < 0 else line_stop
        stop = text.find("]]", start + 2, line_stop)
        if stop >= 0:
            yield start, stop + 2
        start = text.find("[[", line_stop if stop < 0 else stop + 2)


def _is_sure(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends here beyond doubt."""
    if match["blank_line"] or match["gap"].count("\n") > 1 or "\u2029" in match["gap"]:
        return True
    marks, closers = match["marks"], match["closers"]
    if marks[0] in _ELLIPSES or marks.startswith("...") or not _ends_word(text, match.start()):
        return False
    following = _first_of_next(text, match.end())
    if _UNSPACED_MARK.match(marks):
        return not (marks[0] == "\uff0e" and following.isdigit())
    if closers and closers[0] not in _CLOSERS_AFTER_SPACED_MARK:
        return False
    if not (_begins_sentence(following) or (following.isdigit() and "." not in marks)):
        return False
    return marks[0] != "." or not _is_doubtful_stop(text, match.start(), following)


def _begins_sentence(char: str) -> bool:
    """A capital, or a letter of a script without them; Georgian's everyday letters count as such."""
    return char.isalpha() and (not char.islower() or "\u10d0" <= char <= "\u10ff")


def _ends_word(text: str, position: int) -> bool:
    """Whether a letter, number or vowel sign stands before `position`, but for a few brackets and a space."""
    before = text[max(0, position - 4) : position].rstrip(_CLOSERS_AND_SPACE)
    return bool(before) and (before[-1].isalnum() or unicodedata.category(before[-1]).startswith("M"))


def _first_of_next(text: str, position: int) -> str:
    """The first character after a few opening quotes and brackets, or ""."""
    return text[position : position + 4].lstrip(_OPENERS)[:1]


def _is_doubtful_stop(text: str, position: int, following: str) -> bool:
    """Whether the full stop at `position` may belong to an abbreviation, an initial, an address or an ordinal."""
    before = text[max(0, position - _WORD_CHARS_LOOKED_BACK) : position]
    if before[-1:].isspace():
        return True
    word = before.split()[-1].strip(_OPENERS + _CLOSERS)
    letters = sum(char.isalpha() for char in word)
    caseless = not (following.isupper() or following.istitle())
    if word.isdigit():
        return len(word) < _SHORTEST_YEAR_DIGITS
    if letters < (3 if caseless else 2) or "." in word or word[-1:].isdigit():
        return True
    return word.casefold() in ABBREVIATIONS or _ROMAN_NUMBER.fullmatch(word) is not None


def _cut(source: _Source, start: int, end: int, doubtful: list[int], max_chars: int) -> Iterator[str]:
    """The piece from `start` to `end`, in several where it is longer than `max_chars`."""
    text = source.text
    position = _skip_spaces(text, start, end)
    end = position + len(text[position:end].rstrip())
    while end - position > max_chars:
        stop = _best_cut(source, position, end, doubtful, max_chars)
        yield text[position:stop].rstrip()
        position = _skip_spaces(text, stop, end)
    if position < end:
        yield text[position:end]


def _skip_spaces(text: str, start: int, end: int) -> int:
    spaces = _SPACES.match(text, start, end)
    return spaces.end() if spaces else start


def _best_cut(source: _Source, start: int, end: int, doubtful: list[int], max_chars: int) -> int:
    """Where to end a piece of at most `max_chars`: of the best kind of place, the one nearest to an even share."""
    low, high = start + max(1, max_chars // 4), start + max_chars
    share = start + (end - start) // -(-(end - start) // max_chars)
    for places in _places(source.text, low, high, doubtful):
        free = [place for place in places if low <= place <= high and source.block_at(place) is None]
        if free:
            return min(free, key=lambda place: abs(place - share))
    for place in sorted(range(low, high + 1), key=lambda place: abs(place - share)):
        if is_boundary(source.text, place, start) and source.block_at(place) is None:
            return place
    block = source.block_at(high)
    if block is None:
        return high
    return block[0] if block[0] > start else block[1]


def _places(text: str, low: int, high: int, doubtful: list[int]) -> Iterator[list[int]]:
    """Marks and spaces between `low` and `high` to cut at, the best kind first."""
    yield doubtful[bisect_right(doubtful, low - 1) : bisect_right(doubtful, high)]
    yield [match.end() for match in _CLAUSE_END.finditer(text, low - 1, high + 1)]
    yield [match.start() for match in _SPACES.finditer(text, low, high + 1)]
