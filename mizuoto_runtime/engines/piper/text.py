"""Text to phonemes to ids, as Piper makes them (piper-tts 1.8.0: `voice.py`, `phonemize_espeak.py`, `phoneme_ids.py`).

Known differences, all on purpose:

- Sentences without phonemes are left out, as Piper leaves them out of its audio.
- Emoji are silent, and three hyphens or more that begin a word: both can crash espeak-ng, Piper's too.
- Arabic is read without the neural diacritizer that Piper runs first, so only written vowels are spoken.
- Dictionaries are those of espeak-ng 1.52.0 (2024); Piper's are of April 2026. They differ much in Portuguese,
  Swedish, Russian, Persian, Hungarian and Hebrew, and in a few words of French, Spanish and English.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from ...errors import ModelFileError
from ...text.espeak import read_clauses

BEGIN, END, PAD = "^", "$", "_"
PHONEME_TYPES = ("espeak", "text")
MAX_PHONEMES = 800
"""The most that are encoded at once, so that memory has a bound; Piper itself has none."""

_RAW_BLOCK = re.compile(r"(\[\[.*?\]\])")
_LANGUAGE_FLAG = re.compile(r"\([^)]+\)")
_PAUSES = frozenset(",:;")


class VoiceText(Protocol):
    """What of a voice's configuration decides how it reads text."""

    @property
    def phoneme_type(self) -> str: ...

    @property
    def espeak_voice(self) -> str: ...

    @property
    def vowel_clusters(self) -> Set[tuple[str, ...]]: ...


def phonemize(text: str, voice: VoiceText) -> list[list[str]]:
    """The phonemes of `text`, sentence by sentence; none for a text that has nothing to speak.

    With the phoneme type `espeak`, what stands between `[[` and `]]` is taken as phonemes. UnknownName for an espeak-ng
    voice that isn't there, ModelFileError for an unsupported phoneme type, MissingDependency without espeak-ng.
    """
    if voice.phoneme_type == "text":
        return [list(unicodedata.normalize("NFD", text))] if text else []
    if voice.phoneme_type != "espeak":
        raise ModelFileError(
            f"the voice takes phonemes of the type {voice.phoneme_type!r}, which can't be made here; "
            f"use a voice with one of: {', '.join(PHONEME_TYPES)}"
        )
    return [sentence for sentence in _joined_parts(_RAW_BLOCK.split(text), voice) if sentence]


def reading_note(voice: VoiceText) -> str | None:
    """What the user should know about how this voice reads text, if there is something."""
    if voice.phoneme_type == "espeak" and voice.espeak_voice == "ar":
        return "Arabic is spoken without vowels that aren't written: write the text with its diacritics (tashkeel)"
    return None


def unknown_phonemes(phonemes: Sequence[str], id_map: Mapping[str, Sequence[int]]) -> list[str]:
    """Those of `phonemes`, each once, that `id_map` lacks: they get no ids."""
    return [phoneme for phoneme in dict.fromkeys(phonemes) if phoneme not in id_map]


def phoneme_ids(phonemes: Sequence[str], id_map: Mapping[str, Sequence[int]]) -> list[int]:
    """The ids of one sentence: its begin, each phoneme that `id_map` has, its end, with padding between them.

    ModelFileError if `id_map` lacks begin, end or padding.
    """
    absent = unknown_phonemes((BEGIN, END, PAD), id_map)
    if absent:
        raise ModelFileError(
            f"the voice's phoneme_id_map lacks {', '.join(map(repr, absent))}; download the voice's files again"
        )
    ids = [*id_map[BEGIN], *id_map[PAD]]
    for phoneme in phonemes:
        if phoneme in id_map:
            ids += [*id_map[phoneme], *id_map[PAD]]
    return [*ids, *id_map[END]]


def split_phonemes(phonemes: Sequence[str], max_length: int = MAX_PHONEMES) -> list[list[str]]:
    """`phonemes` in parts of at most `max_length`: cut after the last pause that fits, else the last space, else there.

    Joined, the parts are `phonemes`.
    """
    parts: list[list[str]] = []
    rest = list(phonemes)
    while len(rest) > max_length:
        spaces = [index for index in range(1, max_length) if rest[index] == " "]
        pauses = [index for index in spaces if rest[index - 1] in _PAUSES]
        cut = (pauses or spaces or [max_length - 1])[-1] + 1
        parts.append(rest[:cut])
        rest = rest[cut:]
    return [*parts, rest] if rest else parts


def merge_clusters(phonemes: Sequence[str], clusters: Set[tuple[str, ...]]) -> list[str]:
    """`phonemes` with each run that is one of `clusters` joined to one phoneme, the longest first."""
    longest = max(map(len, clusters), default=1)
    merged: list[str] = []
    position = 0
    while position < len(phonemes):
        lengths = range(min(longest, len(phonemes) - position), 1, -1)
        length = next((n for n in lengths if tuple(phonemes[position : position + n]) in clusters), 1)
        merged.append("".join(phonemes[position : position + length]))
        position += length
    return merged


def _joined_parts(parts: Sequence[str], voice: VoiceText) -> list[list[str]]:
    """The sentences of a text split at its raw blocks: a block, and what follows it, carry on the sentence before."""
    sentences: list[list[str]] = []
    after_raw = False
    for index, part in enumerate(parts):
        if part.startswith("[["):
            if not sentences:
                sentences.append([])
            before = [" "] if index > 0 and parts[index - 1].endswith(" ") else []
            behind = [" "] if "".join(parts[index + 1 : index + 2]).startswith(" ") else []
            sentences[-1] += [*before, *part[2:-2].strip(), *behind]
            after_raw = True
            continue
        spoken = _spoken(part, voice)
        if after_raw and spoken:
            sentences[-1] += spoken.pop(0)
        sentences += spoken
        after_raw = False
    return sentences


def _spoken(text: str, voice: VoiceText) -> list[list[str]]:
    """The sentences of a text without raw blocks."""
    sentences: list[list[str]] = []
    current: list[str] = []
    for clause in read_clauses(text, voice.espeak_voice):
        pause = " " if clause.mark in _PAUSES else ""
        phonemes = _LANGUAGE_FLAG.sub("", clause.phonemes) + clause.mark + pause
        current += unicodedata.normalize("NFD", phonemes)
        if clause.ends_sentence:
            sentences.append(current)
            current = []
    if current:
        sentences.append(current)
    return [merge_clusters(sentence, voice.vowel_clusters) for sentence in sentences]
