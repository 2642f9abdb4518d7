"""What a voice is asked to be: attributes in English or Chinese, one of each category.

The attributes and their pairs are those of omnivoice 0.2.1 (omnivoice/utils/voice_design.py), in the order of its
documentation.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ...errors import InputError

GENDERS = {"male": "男", "female": "女"}
AGES = {"child": "儿童", "teenager": "少年", "young adult": "青年", "middle-aged": "中年", "elderly": "老年"}
PITCHES = {
    "very low pitch": "极低音调",
    "low pitch": "低音调",
    "moderate pitch": "中音调",
    "high pitch": "高音调",
    "very high pitch": "极高音调",
}
STYLES = {"whisper": "耳语"}
ACCENTS = tuple(
    f"{place} accent"
    for place in (
        "american",
        "british",
        "australian",
        "chinese",
        "canadian",
        "indian",
        "korean",
        "portuguese",
        "russian",
        "japanese",
    )
)
DIALECTS = tuple(
    f"{place}话"
    for place in ("河南", "陕西", "四川", "贵州", "云南", "桂林", "济南", "石家庄", "甘肃", "宁夏", "青岛", "东北")
)
TO_CHINESE = {**GENDERS, **AGES, **PITCHES, **STYLES}
TO_ENGLISH = {chinese: english for english, chinese in TO_CHINESE.items()}
CATEGORIES: dict[str, tuple[str, ...]] = {
    "gender": (*GENDERS, *GENDERS.values()),
    "age": (*AGES, *AGES.values()),
    "pitch": (*PITCHES, *PITCHES.values()),
    "style": (*STYLES, *STYLES.values()),
    "accent": ACCENTS,
    "dialect": DIALECTS,
}
KNOWN = tuple(attribute for attributes in CATEGORIES.values() for attribute in attributes)
_IDEOGRAPH = re.compile("[\u4e00-\u9fff]")


def parse_instruct(text: str) -> tuple[str, ...]:
    """The attributes in `text`, with commas of either width between them, in lower case; () for none.

    InputError names each that isn't known and what is near, an accent with a dialect, and two of one category.
    """
    given = [part.lower() for part in re.split(r"\s*[,，]\s*", text.strip()) if part]
    unknown = [attribute for attribute in given if attribute not in KNOWN]
    if unknown:
        english = ", ".join(attribute for attribute in KNOWN if not _IDEOGRAPH.search(attribute))
        chinese = "，".join(attribute for attribute in KNOWN if _IDEOGRAPH.search(attribute))
        raise InputError(f"unknown voice attributes: {'; '.join(map(_near, unknown))}. Known: {english}; {chinese}")
    if any(each in ACCENTS for each in given) and any(each in DIALECTS for each in given):
        raise InputError("a voice can't have an accent of English and a dialect of Chinese; leave one out")
    for category, attributes in CATEGORIES.items():
        same = [each for each in given if each in attributes]
        if len(same) > 1:
            raise InputError(f"{' and '.join(map(repr, same))} are both a voice's {category}; leave one")
    return tuple(given)


def _near(attribute: str) -> str:
    found = difflib.get_close_matches(attribute, sorted(KNOWN), n=1)
    return f"{attribute!r} (did you mean {found[0]!r}?)" if found else repr(attribute)


def instruction(attributes: Sequence[str], text: str) -> str:
    """The attributes as the model reads them beside `text`: all in one language, in the order that they were given.

    Chinese for a dialect and for a text with an ideograph, English for an accent and otherwise.
    """
    chinese = bool(_IDEOGRAPH.search(text))
    if any(each in DIALECTS for each in attributes):
        chinese = True
    elif any(each in ACCENTS for each in attributes):
        chinese = False
    table = TO_CHINESE if chinese else TO_ENGLISH
    said = [table.get(each, each) for each in attributes]
    return ("，" if any(_IDEOGRAPH.search(each) for each in said) else ", ").join(said)
