"""Numbers, dates and units of a text spelled out; what says how to speak stays as it is.

Chinese and English by grammars, whole numbers of other languages by num2words, both optional. Rules: omnivoice 0.2.1,
`omnivoice/utils/text.py`, which uses WeTextProcessing; wetext has its Chinese grammar, and nearly its English one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ...text.grammar import optional, spell_chinese, spell_english

_TAG = r"\[[^\[\]]*\]"
_TAGS = re.compile(_TAG)
_TAGS_AND_PINYIN = re.compile(f"{_TAG}|[A-Z]+[1-5]")
_CHINESE = re.compile("[\u4e00-\u9fff]")
_NUMBER = re.compile(r"\d+")
_RULES = {
    "remove_erhua": True,
    "remove_interjections": True,
    "full_to_half": True,
    "traditional_to_simple": True,
}
"""Of the grammar that upstream loads, whatever it asks for."""


def normalise(text: str, language: str) -> str:
    """The text as it is spoken. language: an id; "": Chinese if there are Chinese signs, else English.

    Sounds and pronunciations, [laughter] or [B EY1 S], stay, in Chinese also those in pinyin, NI3. MissingDependency
    says what to install.
    """
    language = language or ("zh" if _CHINESE.search(text) else "en")
    if language == "zh":
        return _apart(text, _TAGS_AND_PINYIN, lambda part: spell_chinese(part, **_RULES))
    if language == "en":
        return _apart(text, _TAGS, spell_english)
    return _apart(text, _TAGS, lambda part: _NUMBER.sub(lambda found: _spelled(found[0], language), part))


def _apart(text: str, kept: re.Pattern[str], spell: Callable[[str], str]) -> str:
    """`spell` of all but what is `kept`, and of the spaces around it."""
    return "".join(part if is_kept else _within_spaces(part, spell) for part, is_kept in _parts(text, kept))


def _parts(text: str, kept: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    end = 0
    for found in kept.finditer(text):
        yield text[end : found.start()], False
        yield found[0], True
        end = found.end()
    yield text[end:], False


def _within_spaces(part: str, spell: Callable[[str], str]) -> str:
    core = part.strip()
    if not core:
        return part
    before, after = part.split(core, 1)
    return before + spell(core) + after


def _spelled(number: str, language: str) -> str:
    """As it was, if the language's numbers aren't known."""
    num2words = optional("num2words").num2words
    try:
        return str(num2words(int(number), lang=language))
    except (NotImplementedError, OverflowError, ValueError):
        return number
