"""Numbers, dates and units spelled out, as upstream's text normaliser does it, with the libraries that it uses.

Those are optional: wetext (Chinese and English grammars), inflect (digits that are left), regex (emoji).
"""

from __future__ import annotations

import re
from itertools import groupby

from ...text.grammar import optional, spell_chinese, spell_english

_CHINESE = re.compile("[\u4e00-\u9fff]")
_MARKDOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"```.*?```", re.DOTALL), ""),
    (re.compile(r"`[^`]*`"), ""),
    (re.compile(r"!\[[^\]]*\]\([^)]+\)"), ""),
    (re.compile(r"\[([^\]]+)\]\([^)]+\)"), r"\1"),
    (re.compile(r"^(\s*)-\s+", re.MULTILINE), r"\1"),
    (re.compile(r"<[^>]+>"), ""),
    (re.compile(r"^#{1,6}\s*", re.MULTILINE), ""),
    (re.compile(r"\n\s*\n"), "\n"),
)
"""Code, pictures, links, lists, tags, headings, empty lines."""
_EMOJI = r"\p{Emoji_Presentation}|\p{Emoji}\uFE0F"
_PLAIN = str.maketrans({"\n": " ", "\t": " ", "“": '"', "”": '"'})
_FORMULA = re.compile(r"[\d$%^*_+≥≤≠×÷?=]")
_MINUS = re.compile(r"(?<=[a-zA-Z0-9])-(?=\d)")
_SPOKEN = str.maketrans({"²": "平方", "³": "立方", "√": "根号", "≈": "约等于", "<": "小于"})
_BRACKETS = str.maketrans({"（": " ", "）": " ", "【": " ", "】": " ", "`": ""})


def normalise(text: str) -> str:
    """The text as it is spoken. MissingDependency says what to install."""
    chinese = _CHINESE.search(text) is not None
    cleaned = _cleaned(text)
    if not cleaned.strip():
        return cleaned
    return _chinese(cleaned) if chinese else _english(cleaned)


def is_bare(text: str) -> bool:
    """Whether nothing of the text is spoken, since all of it is code, tags, emoji and the like."""
    return not _cleaned(text).strip()


def _cleaned(text: str) -> str:
    for pattern, replacement in _MARKDOWN:
        text = pattern.sub(replacement, text)
    bare: str = optional("regex").sub(_EMOJI, "", text.strip())
    return bare.translate(_PLAIN)


def _chinese(text: str) -> str:
    text = text.replace("=", "等于")
    if _FORMULA.search(text):
        text = _MINUS.sub(" - ", text)
    return _joined(spell_chinese(text, remove_erhua=True)).translate(_SPOKEN).translate(_BRACKETS).replace("——", " ")


def _joined(text: str) -> str:
    """Without the spaces that don't stand between two signs of ASCII."""
    kept = [
        char
        for index, char in enumerate(text)
        if char != " " or (_is_sign(text[index + 1 : index + 2]) and _is_sign(text[index - 1]))
    ]
    return "".join(kept)


def _is_sign(char: str) -> bool:
    return bool(char) and char.isascii() and char != " "


def _english(text: str) -> str:
    """Upstream spells out whatever Python calls a digit: raised and circled ones become "zero"."""
    numbers = optional("inflect").engine()
    runs = ((digits, "".join(run)) for digits, run in groupby(spell_english(text), str.isdigit))
    return "".join(str(numbers.number_to_words(run)) if digits else run for digits, run in runs)
