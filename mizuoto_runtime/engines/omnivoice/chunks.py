"""A long text in chunks that end at marks, as omnivoice 0.2.1 splits it (`chunk_text_punctuation`)."""

from __future__ import annotations

from collections.abc import Iterator

BREAKS = frozenset(".,;:!?。，；：！？")
CLOSING = frozenset("\"'“”‘’）]》>」】")
FEWEST_CHARS = 3
_WORDS = (
    "Mr Mrs Ms Dr Prof Sr Jr Rev Fr Hon Pres Gov Capt Gen Sen Rep Col Maj Lt Cmdr Sgt Cpl Co Corp Inc Ltd Est Dept "
    "St Ave Blvd Rd Mt Ft No Jan Feb Mar Apr Aug Sep Sept Oct Nov Dec i.e e.g vs Vs Etc approx fig def"
)
ABBREVIATIONS = frozenset(f"{word}." for word in _WORDS.split())


def chunk_text(text: str, most_chars: int) -> list[str]:
    """Chunks of up to `most_chars` characters, longer ones only where there is no mark to break at.

    Chunks under 3 characters go with the one before, or with the next if they are first.
    """
    filled: list[str] = []
    for sentence in _sentences(text):
        if filled and len(filled[-1]) + len(sentence) <= most_chars:
            filled[-1] += sentence
        else:
            filled.append(sentence)
    chunks: list[str] = []
    for index, chunk in enumerate(filled):
        joins_first = index == 1 and len(filled[0]) < FEWEST_CHARS
        if chunks and (joins_first or len(chunk) < FEWEST_CHARS):
            chunks[-1] += chunk
        else:
            chunks.append(chunk)
    return [chunk.strip() for chunk in chunks if chunk.strip()]


def _sentences(text: str) -> Iterator[str]:
    """The text cut after each mark that ends no abbreviation; further marks stay with the one before."""
    start, end = 0, 0
    while end < len(text):
        end += 1
        if text[end - 1] not in BREAKS or _abbreviates(text[start:end]):
            continue
        while end < len(text) and text[end] in BREAKS | CLOSING:
            end += 1
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _abbreviates(sentence: str) -> bool:
    return sentence.endswith(".") and sentence.split()[-1] in ABBREVIATIONS
