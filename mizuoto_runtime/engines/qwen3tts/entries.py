"""Entries of a JSON file, each checked when it is read; errors name the file, the entry and what is allowed."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path

from ...errors import ModelFileError

MAX_JSON_BYTES = 32 << 20
_MISSING = object()


def read_json(path: Path) -> Entries:
    """The JSON object in the file at `path`; ModelFileError if there is none."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_JSON_BYTES:
            raise ModelFileError(f"{path}: {size_bytes:,} bytes; such a file has {MAX_JSON_BYTES:,} at most")
        content = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read: {error.strerror or error}; download the model again") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not valid JSON ({error}); download the file again") from error
    return Entries(content, str(path), "")


class Entries:
    """A JSON object. source: the file; where: the way to the object in it."""

    def __init__(self, content: object, source: str, where: str) -> None:
        self.source = source
        self.where = where
        if not isinstance(content, dict):
            raise self.error("must be an object", content)
        self.content: Mapping[str, object] = content

    def error(self, problem: str, value: object = _MISSING) -> ModelFileError:
        found = "" if value is _MISSING else f", not {reprlib.repr(value)}"
        return ModelFileError(f"{self.source}: {self.where or 'the file'} {problem}{found}")

    def at(self, name: str) -> Entries:
        return Entries(self._get(name, _MISSING), self.source, self._path(name))

    def has(self, name: str) -> bool:
        return self.content.get(name) is not None

    def integer(self, name: str, low: int, high: int, default: object = _MISSING) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(name, f"must be a whole number from {low:,} to {high:,}", value)
        return value

    def number(self, name: str, low: float, high: float, default: object = _MISSING) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self._wrong(name, f"must be a number from {low:g} to {high:g}", value)
        return float(value)

    def flag(self, name: str, default: object = _MISSING) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "must be true or false", value)
        return value

    def text(self, name: str, default: object = _MISSING) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "must be a text", value)
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: object = _MISSING) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise self._wrong(name, f"must be one of {', '.join(choices)}", value)
        return value

    def _get(self, name: str, default: object) -> object:
        value = self.content.get(name)
        if value is not None:
            return value
        if default is _MISSING:
            raise ModelFileError(f"{self.source}: {self._path(name)} is missing")
        return default

    def _wrong(self, name: str, problem: str, value: object) -> ModelFileError:
        return ModelFileError(f"{self.source}: {self._path(name)} {problem}, not {reprlib.repr(value)}")

    def _path(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name
