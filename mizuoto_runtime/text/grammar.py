"""Numbers, dates, units and signs spelled out by the grammars of wetext, an optional package.

A text on which the Chinese grammar fails stays as it is. Where the English one fails, runs of spaces become one; where
it fails still, each word is normalised for itself, and one on which it fails stays as it is.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from ..errors import MissingDependency

INSTALL = "pip install wetext inflect regex num2words"
_SPACES = re.compile(" {2,}")


def spell_chinese(text: str, **rules: bool) -> str:
    """rules: wetext's own, such as remove_erhua. MissingDependency says what to install."""
    grammar = optional("wetext").Normalizer(lang="zh", operator="tn", **rules)
    try:
        return str(grammar.normalize(text))
    except AssertionError:
        return text


def spell_english(text: str) -> str:
    """MissingDependency says what to install."""
    grammar = optional("wetext").Normalizer(lang="en", operator="tn")
    spaced = _SPACES.sub(" ", text).strip(" ")
    for whole in (text, spaced):
        if (spelled := _spelled(grammar, whole)) is not None:
            return spelled
    words = ((word, _spelled(grammar, word)) for word in spaced.split(" "))
    return " ".join(word if spelled is None else spelled for word, spelled in words)


def _spelled(grammar: Any, text: str) -> str | None:
    """None where the grammar fails."""
    try:
        return str(grammar.normalize(text))
    except AssertionError:
        return None


def optional(package: str) -> Any:
    """The module of a package that normalising needs. MissingDependency says what to install."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingDependency(f"normalising a text needs the package {package}: {INSTALL}") from error
