"""Text as the model reads it: characters, and pinyin where it is Chinese; and how a long text is cut.

The rules are those of f5-tts 1.1.22 (`f5_tts/model/utils.py`, `f5_tts/infer/utils_infer.py`), which cuts words with
rjieba 0.2.2. What holds no Chinese is cut here by rjieba's rules, so that its package is needed for Chinese only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError, MissingDependency, ModelFileError
from ...text.checks import checked_text
from ...weights.entries import MAX_TOKENIZER_BYTES, check_size

UNKNOWN = 0
"""The id of a token that the vocabulary lacks: in the official one, the space's."""
INSTALL = "pip install rjieba pypinyin"
LONGEST_SECONDS = 22
"""A chunk is meant to fill up what the reference leaves of so many seconds."""

_REPLACED = str.maketrans({";": ",", "“": '"', "”": '"', "‘": "'", "’": "'"})
_NO_SPACE_AFTER = frozenset(" :'\"")
_SPACED = ("\u3100", "\u9fff")
"""A space goes before each of these, and before its pinyin."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
_OTHERS_WITH_PINYIN = "\u3007\ue815-\ue864"
_RUN = re.compile(f"(?P<run>[{_HAN}a-zA-Z0-9+#&._%-]+)|\r\n|.", re.DOTALL)
"""What rjieba looks for words in; anything else is a word of one character."""
_IS_CHINESE = re.compile(f"[{_HAN}{_OTHERS_WITH_PINYIN}]")
_LISTED = re.compile(r"(AT&T|[cC]#|[cC]\+\+)")
"""The words without Chinese in rjieba's dictionary."""
_WORD = re.compile(r"([a-zA-Z0-9]+(?:[._-][a-zA-Z0-9]+)*%?)")

_SENTENCE_END = re.compile(r"(?<=[;:,.!?])\s+|(?<=[；：，。！？])")


@dataclass(frozen=True)
class Vocabulary:
    """A model's tokens. size: how many there are; the text embedding has a row more, for the filler."""

    ids: Mapping[str, int]

    @property
    def size(self) -> int:
        return len(self.ids)

    def to_ids(self, tokens: Iterable[str]) -> list[int]:
        """An id for each token, from 0; UNKNOWN for those that aren't there. The model is fed these, plus 1."""
        return [self.ids.get(token, UNKNOWN) for token in tokens]


def read_vocabulary(path: Path) -> Vocabulary:
    """Read `vocab.txt`: a token a line, whose number from 0 is its id. A token that stands twice has the later id.

    As upstream reads it, each line loses its last character: the last line must end in a line break to be whole.
    ModelFileError if it can't be read, is empty or too large.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such file; put the vocab.txt that belongs to the model there")
    check_size(path, MAX_TOKENIZER_BYTES)
    try:
        with path.open(encoding="utf-8") as file:
            ids = {line[:-1]: number for number, line in enumerate(file)}
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path}: byte {error.start:,} isn't UTF-8; download the file again") from error
    if not ids:
        raise ModelFileError(f"{path}: the file is empty; download it again")
    return Vocabulary(ids)


def to_tokens(text: str) -> list[str]:
    """The tokens of `text`: pinyin with its tone for each Chinese character, any other character itself.

    A space goes before Chinese and, where there is none, before a word of several ASCII characters. MissingDependency
    if there is Chinese and the packages for it aren't installed.
    """
    tokens: list[str] = []
    for word in _words(text.translate(_REPLACED)):
        size_bytes = len(word.encode("utf-8", "surrogatepass"))
        if size_bytes == len(word):
            if tokens and size_bytes > 1 and tokens[-1] not in _NO_SPACE_AFTER:
                tokens.append(" ")
            tokens.extend(word)
        elif size_bytes == 3 * len(word):
            tokens.extend(_spoken_together(word))
        else:
            tokens.extend(_spoken_alone(word))
    return tokens


def _words(text: str) -> Iterator[str]:
    cut = _word_cutter() if _IS_CHINESE.search(text) else None
    for match in _RUN.finditer(text):
        run = match["run"]
        if run is None:
            yield match[0]
        elif cut is None or not _IS_CHINESE.search(run):
            yield from _plain_words(run)
        else:
            yield from cut(run)


def _plain_words(run: str) -> Iterator[str]:
    """The words of a run without Chinese; signs between two words stay together."""
    for part in _LISTED.split(run):
        yield from (part,) if _LISTED.fullmatch(part) else filter(None, _WORD.split(part))


def _spoken_together(word: str) -> Iterator[str]:
    """Of a word of characters with three bytes each: its characters sound as they do in this word."""
    sounds = _pinyin(word)
    if len(sounds) != len(word):
        sounds = [sound for char in word for sound in _pinyin(char)]
    for char, sound in zip(word, sounds, strict=True):
        yield from (" ", sound) if _is_spaced(char) else (sound,)


def _spoken_alone(word: str) -> Iterator[str]:
    for char in word:
        yield from (" ", *_pinyin(char)) if _is_spaced(char) else (char,)


def _is_spaced(char: str) -> bool:
    return _SPACED[0] <= char <= _SPACED[1]


def _pinyin(text: str) -> list[str]:
    if not _IS_CHINESE.search(text):
        return list(text)
    try:
        from pypinyin import Style, lazy_pinyin
    except ImportError as error:
        raise _missing("pypinyin") from error
    sounds: list[str] = lazy_pinyin(text, style=Style.TONE3, tone_sandhi=True)
    return sounds


def _word_cutter() -> Callable[[str], Iterable[str]]:
    """rjieba's cutter of words, else jieba's, which differs from it in rare words only."""
    try:
        import rjieba
    except ImportError:
        return _jieba_cutter()
    cut: Callable[[str], list[str]] = rjieba.cut
    return cut


def _jieba_cutter() -> Callable[[str], Iterable[str]]:
    try:
        import jieba
    except ImportError as error:
        raise _missing("rjieba") from error

    def cut(run: str) -> Iterator[str]:
        plain = ""
        for word in jieba.cut(run):
            if word.isascii():
                plain += word
                continue
            yield from _plain_words(plain)
            plain = ""
            yield word
        yield from _plain_words(plain)

    return cut


def _missing(package: str) -> MissingDependency:
    return MissingDependency(
        f"Chinese text needs the package {package}, which isn't installed: {INSTALL} (with the Python that runs this)"
    )


def chunk_text(text: str, max_chars: int) -> list[str]:
    """Cut `text` at the ends of clauses into chunks of at most `max_chars` bytes of UTF-8; longer clauses stay whole.

    Without the spaces around them. The last one is empty if the text ends in spaces after a full-width sign, and they
    don't fit: upstream makes two frames of sound for it.
    """
    chunks: list[str] = []
    chunk = ""
    for clause in filter(None, _SENTENCE_END.split(text)):
        if chunk and _size(chunk) + _size(clause) > max_chars:
            chunks.append(chunk.strip())
            chunk = ""
        chunk += f"{clause} " if clause[-1].isascii() else clause
    return [*chunks, chunk.strip()] if chunk else chunks


def max_chars(reference_text: str, seconds: float, speed: float) -> int:
    """The bytes that a chunk may have, by how fast the reference is spoken.

    reference_text: as `finish_reference_text` gives it. seconds: of the prepared reference at its own rate.
    """
    return int(_size(reference_text) / seconds * (LONGEST_SECONDS - seconds) * speed)


def finish_reference_text(text: str) -> str:
    """What a reference says, ended as a sentence. InputError if there is no text, or it can't be spoken."""
    if not text.strip():
        raise InputError(
            "the reference's text is missing: write down what is said in the recording, word for word; "
            "recognising it from the sound isn't there yet"
        )
    checked_text(text)
    if text.endswith((". ", "。")):
        return text
    return f"{text} " if text.endswith(".") else f"{text}. "


def space_reference_text(text: str) -> str:
    """A finished reference text as it stands before the text to speak: one more space if it ends in ASCII."""
    return f"{text} " if text[-1].isascii() else text


def _size(text: str) -> int:
    return len(text.encode("utf-8"))
