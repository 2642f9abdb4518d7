"""Numbers, dates, units and signs spelled out by the grammars of wetext, an optional package.

A text on which the Chinese grammar fails stays as it is. Where the English one fails, each word is normalised for
itself, and one on which it fails stays as it is.
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
    """Runs of spaces become one. MissingDependency says what to install."""
    grammar = optional("wetext").Normalizer(lang="en", operator="tn")
    text = _SPACES.sub(" ", text).strip(" ")
    try:
        return str(grammar.normalize(text))
    except AssertionError:
        return " ".join(_word(grammar, word) for word in text.split(" "))


def _word(grammar: Any, word: str) -> str:
    try:
        return str(grammar.normalize(word))
    except AssertionError:
        return word


def optional(package: str) -> Any:
    """The module of a package that normalising needs. MissingDependency says what to install."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingDependency(f"normalising a text needs the package {package}: {INSTALL}") from error
