"""Tokens that a model's files add to its tokenizer's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .entries import Entry

if TYPE_CHECKING:
    from tokenizers import AddedToken


def added_token(entry: Entry) -> AddedToken:
    """The token that an entry of `added_tokens_decoder` describes. ModelFileError for what it can't be."""
    from tokenizers import AddedToken

    return AddedToken(
        entry.text("content"),
        single_word=entry.flag("single_word", False),
        lstrip=entry.flag("lstrip", False),
        rstrip=entry.flag("rstrip", False),
        normalized=entry.flag("normalized", False),
        special=entry.flag("special", True),
    )
