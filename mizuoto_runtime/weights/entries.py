"""Reads a JSON file's entries, each checked, with errors that say where it stands."""

from __future__ import annotations

import json
import re
import reprlib
import sys
from pathlib import Path
from typing import Any

from ..errors import ModelFileError

MAX_CONFIG_BYTES = 8 << 20
MAX_SIZE = 1 << 20
MAX_LAYERS = 512
MAX_TOKENIZER_BYTES = 64 << 20
HALF_PAIR = re.compile("[\ud800-\udfff]")
"""JSON can spell it, but no file, library or terminal takes it."""


def read_entry(path: Path, *, most_bytes: int = MAX_CONFIG_BYTES) -> Entry:
    """The JSON object in the file at `path`. Raises ModelFileError."""
    return Entry(read_json(path, most_bytes=most_bytes), str(path))


def read_json(path: Path, *, most_bytes: int = MAX_CONFIG_BYTES) -> object:
    """The decoded JSON file. Raises ModelFileError, also if it is larger than `most_bytes`."""
    try:
        check_size(path, most_bytes)
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read: {error.strerror or error}; download it again") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not valid JSON ({error}); download it again") from error


def check_size(path: Path, most_bytes: int) -> None:
    """Refuse a file that is larger, before it is read: ModelFileError. OSError if it can't be looked at."""
    if path.stat().st_size > most_bytes:
        raise ModelFileError(f"{path}: larger than {most_bytes:,} bytes, more than such a file ever has")


class Entry:
    """A JSON object, and where it stands, for errors."""

    def __init__(self, content: object, source: str, path: str = "") -> None:
        self.source, self.path = source, path
        if not isinstance(content, dict):
            raise self.error("", f"is {reprlib.repr(content)}; it must be an object")
        self.content: dict[str, Any] = content

    def error(self, key: str, problem: str) -> ModelFileError:
        where = ".".join(part for part in (self.path, key) if part) or "the file"
        return ModelFileError(f"{self.source}: {where} {problem}")

    def get(self, key: str, default: object) -> Any:
        """The value, the default where it is absent or null."""
        value = self.content.get(key)
        return default if value is None else value

    def entry(self, key: str) -> Entry:
        return Entry(self.get(key, {}), self.source, ".".join(part for part in (self.path, key) if part))

    def size(self, key: str, default: int | None = None, *, high: int = MAX_SIZE) -> int:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
            raise self.error(key, f"is {reprlib.repr(value)}; a whole number from 1 to {high:,} is needed")
        return value

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, f"is {reprlib.repr(value)}; a whole number from {low:,} to {high:,} is needed")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"is {reprlib.repr(value)}; a text is needed")
        if HALF_PAIR.search(value):
            raise self.error(key, f"is {value!a}; a text without half a surrogate pair is needed")
        return value

    def has(self, key: str) -> bool:
        return self.content.get(key) is not None

    def sizes(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        values = self.get(key, default)
        good = isinstance(values, (list, tuple)) and 1 <= len(values) <= MAX_LAYERS
        if not good or any(type(value) is not int or not 1 <= value <= MAX_SIZE for value in values):
            raise self.error(key, f"is {reprlib.repr(values)}; 1 to {MAX_LAYERS} whole numbers are needed")
        return tuple(values)

    def number(self, key: str, default: float) -> float:
        value = self.get(key, default)
        if not _positive(value):
            raise self.error(key, f"is {reprlib.repr(value)}; a number above 0 is needed")
        return float(value)

    def numbers(self, key: str, default: tuple[float, ...]) -> tuple[float, ...]:
        values = self.get(key, default)
        good = isinstance(values, (list, tuple)) and 1 <= len(values) <= MAX_LAYERS
        if not good or not all(_positive(value) for value in values):
            raise self.error(key, f"is {reprlib.repr(values)}; 1 to {MAX_LAYERS} numbers above 0 are needed")
        return tuple(float(value) for value in values)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"is {reprlib.repr(value)}; true or false is needed")
        return value

    def only(self, key: str, default: object, *known: object) -> Any:
        value = self.get(key, default)
        if value not in known:
            raise self.error(key, f"is {reprlib.repr(value)}; known: {', '.join(map(str, known))}")
        return value


def _positive(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value <= sys.float_info.max  # type: ignore[operator]
