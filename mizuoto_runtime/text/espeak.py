"""Phonemes from espeak-ng, clause by clause, as `espeak_TextToPhonemes` (espeak-ng's `speech.c`) gives them.

The library keeps its state in globals, so one lock guards every use, and each call selects its voice anew, which also
clears what earlier texts left behind. Nothing is loaded before the first call.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..errors import MissingDependency, UnknownName
from . import clauses, espeak_library

_UTF8 = 1
_IPA = 2
_COMMANDS = "\x00-\x08\x0e-\x1f\ud800-\udfff"
_PICTURES = (
    "\u2132-\u214f\u2300-\u2752\u2758-\u2761\u2764-\u27bf\u2800-\u297f\u2b00-\u2bff\u3200-\u33ff\u4dc0-\u4dff"
    "\ue000-\uf8ff\ufe00-\ufe0f\ufff0-\uffff\U0001d000-\U0001d3ff\U0001f000-\U0001ffff\U000e0000-\U0010ffff"
)
_UNREADABLE = re.compile(f"[{_COMMANDS}{_PICTURES}]+|(?<![^\\W_])(?<!-)-{{3,}}(?=[^\\W_])")

_UNSAFE_VOICES = frozenset({"kl"})  # Greenlandic: espeak-ng 1.52.0 crashes at the digit 0
_DICTIONARY = re.compile(r"^(?:dictionary\s+|(?!.*^dictionary\s)language\s+)([^\s-]+)", re.MULTILINE | re.DOTALL)


class Clause(NamedTuple):
    """A clause as espeak-ng divides text.

    phonemes: IPA, with `(lang)` flags where the language switches. mark: the one of `.` `?` `!` `,` `:` `;` that closes
    it, empty for any other end. ends_sentence: whether the next clause begins a new sentence.
    """

    phonemes: str
    mark: str
    ends_sentence: bool


def read_clauses(text: str, voice: str) -> list[Clause]:
    """The clauses of `text`, spoken by the espeak-ng voice `voice`, such as `en-us`. From any thread.

    What makes espeak-ng 1.52.0 crash counts as a space: emoji and other pictures, whose names overrun its buffers, and
    three hyphens or more that begin a word. So do characters that it would take as commands, and halves of surrogate
    pairs. UnknownName for a voice that isn't there; MissingDependency if the library can't be had.
    """
    return _shared().read(text, voice)


def voices() -> tuple[str, ...]:
    """The names of all voices, in lower case. MissingDependency if the library can't be had."""
    return _shared().voices


class Espeak:
    """One instance of the library that `folder` holds, with its `espeak-ng-data`."""

    def __init__(self, folder: Path) -> None:
        self._library = espeak_library.load(folder)
        self.voices = _complete_voices(folder / "espeak-ng-data")
        self._roman_ordinals: dict[str, bool] = {}
        self._lock = threading.Lock()

    def read(self, text: str, voice: str) -> list[Clause]:
        """See `read_clauses`."""
        if voice.lower() not in self.voices:
            raise UnknownName("espeak-ng voice", voice, self.voices)
        encoded = _UNREADABLE.sub(" ", text).encode("utf-8")
        with self._lock:
            roman_ordinals = self._has_roman_ordinals(voice)
            self._select(voice)
            return [
                Clause(phonemes, *clauses.ending(read, following, roman_ordinals=roman_ordinals))
                for phonemes, read, following in self._pieces(encoded)
            ]

    def _has_roman_ordinals(self, voice: str) -> bool:
        """Whether the language reads `IV.` as an ordinal number, so that its dot closes no clause."""
        if voice not in self._roman_ordinals:
            self._select(voice)
            self._roman_ordinals[voice] = len(list(self._pieces(b"a IV. A"))) == 1
        return self._roman_ordinals[voice]

    def _select(self, voice: str) -> None:
        status = self._library.espeak_ng_SetVoiceByName(voice.encode())
        if status:
            raise MissingDependency(f"espeak-ng can't load its voice {voice!r} (status {status:#x}); reinstall it")

    def _pieces(self, encoded: bytes) -> Iterator[tuple[str, str, str]]:
        """For each clause its phonemes, the text it took in, and the character read ahead of the next one, or ""."""
        for _ in self._spoken(b""):
            pass  # drops the character that an interrupted reading left behind
        start = 0
        for phonemes, stop in self._spoken(encoded):
            ahead = len(encoded) if stop is None else _last_char_start(encoded, stop)
            yield phonemes, encoded[start:ahead].decode(), encoded[ahead:stop].decode()
            start = ahead

    def _spoken(self, encoded: bytes) -> Iterator[tuple[str, int | None]]:
        """For each clause its phonemes and how many bytes are read by then: None when it is all of them."""
        text = ctypes.c_char_p(encoded)
        base = ctypes.cast(text, ctypes.c_void_p).value or 0
        pointer = ctypes.c_void_p(base)
        while pointer.value is not None:
            phonemes = self._library.espeak_TextToPhonemes(ctypes.byref(pointer), _UTF8, _IPA) or b""
            yield phonemes.decode("utf-8", "replace"), None if pointer.value is None else pointer.value - base


def _complete_voices(data: Path) -> tuple[str, ...]:
    """The names of the voices that can be used; a few are described, but their dictionary is missing."""
    names = []
    for path in (data / "lang").rglob("*"):
        described = _DICTIONARY.search(path.read_text("utf-8", "replace")) if path.is_file() else None
        if described and (data / f"{described[1]}_dict").is_file():
            names.append(path.name.lower())
    return tuple(sorted(set(names) - _UNSAFE_VOICES))


def _last_char_start(encoded: bytes, stop: int) -> int:
    """Where the UTF-8 character begins that ends before `stop`."""
    start = stop - 1
    while encoded[start] & 0xC0 == 0x80:
        start -= 1
    return start


_LOADING = threading.Lock()


def _shared() -> Espeak:
    with _LOADING:
        return _installed()


@lru_cache(maxsize=1)
def _installed() -> Espeak:
    return Espeak(espeak_library.installed_folder())
