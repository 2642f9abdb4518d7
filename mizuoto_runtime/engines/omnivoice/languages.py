"""The languages that OmniVoice was trained on: names and ids, in `languages.json`."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("languages.json")
NONE = "none"


@cache
def ids_by_name() -> dict[str, str]:
    """Ids of languages by their names in lower case."""
    ids: dict[str, str] = json.loads(_FILE.read_text(encoding="utf-8"))["ids"]
    return ids


def language_tags() -> tuple[str, ...]:
    """All ids, most of them of ISO 639."""
    return tuple(sorted(set(ids_by_name().values())))


def language_id(language: str) -> tuple[str, str]:
    """The id of a language that is named, or given by its id, and a note; "" for none, and for one that isn't known.

    An unknown one gives a note that says what is near.
    """
    if not language.strip() or language.lower() == NONE:
        return "", ""
    known = ids_by_name()
    if language in known.values():
        return language, ""
    name = language.lower()
    if name in known:
        return known[name], ""
    if name in known.values():
        return "", _unknown(language, [name])
    return "", _unknown(language, difflib.get_close_matches(name, [*known, *known.values()], n=3))


def _unknown(language: str, near: list[str]) -> str:
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return (
        f"unknown language {language!r}, so the model was told none{hint} A name or an id of the "
        f"{len(ids_by_name())} known ones is needed, such as 'Chinese' or 'zh'"
    )
