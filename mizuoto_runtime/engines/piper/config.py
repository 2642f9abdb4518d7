"""A Piper voice's settings, as its `.onnx.json` states them, checked.

Format: `piper/config.py` and `piper/voice.py` of piper-tts 1.8.0.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...errors import ModelFileError

PHONEME_TYPES = ("espeak", "text", "pinyin", "hebrew", "japanese", "thai")
MAX_CONFIG_BYTES = 8 << 20
MAX_SYMBOLS = 100_000
MAX_SPEAKERS = 100_000
MAX_PHONEME_LENGTH = 64
MAX_IDS_PER_PHONEME = 64
_ESPEAK_VOICE = re.compile(r"[A-Za-z0-9_+-]{1,64}")


@dataclass(frozen=True, kw_only=True)
class PiperConfig:
    """What a voice says about itself. `noise_scale`, `length_scale` and `noise_w` are the defaults it asks for.

    phoneme_id_map: phoneme (a text of one or more characters) → its symbol ids. speaker_id_map: name → id.
    vowel_clusters: vowels that follow each other and are looked up as one phoneme.
    """

    sample_rate_hz: int
    num_symbols: int
    num_speakers: int
    espeak_voice: str
    phoneme_type: str
    phoneme_id_map: Mapping[str, tuple[int, ...]]
    speaker_id_map: Mapping[str, int]
    vowel_clusters: frozenset[tuple[str, ...]]
    noise_scale: float
    length_scale: float
    noise_w: float
    hop_length: int
    default_speaker_id: int


def read_config(path: Path) -> PiperConfig:
    """Read the `.onnx.json` at `path`. Raises ModelFileError, which names the file and the entry that is wrong."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ModelFileError(
            f"{path}: can't be read: {error.strerror or error}. A Piper voice is two files, <name>.onnx and "
            f"<name>.onnx.json, in one folder; download both."
        ) from error
    if len(raw) > MAX_CONFIG_BYTES:
        raise ModelFileError(f"{path}: larger than {MAX_CONFIG_BYTES:,} bytes, so not a voice's settings")
    try:
        content = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not valid JSON ({error}). Download the file again.") from error
    return parse_config(content, source=str(path))


def parse_config(content: object, *, source: str) -> PiperConfig:
    """Check the decoded JSON `content`; `source` names it in errors."""
    root = _Entry(content, source, "")
    symbols = root.integer("num_symbols", 1, MAX_SYMBOLS)
    speakers = max(root.integer("num_speakers", 0, MAX_SPEAKERS), 1)
    inference = root.mapping("inference", {})
    return PiperConfig(
        sample_rate_hz=root.mapping("audio").integer("sample_rate", 1_000, 384_000),
        num_symbols=symbols,
        num_speakers=speakers,
        espeak_voice=_espeak_voice(root.mapping("espeak")),
        phoneme_type=_phoneme_type(root),
        phoneme_id_map=_phoneme_ids(root.mapping("phoneme_id_map"), symbols),
        speaker_id_map=_speaker_ids(root.mapping("speaker_id_map", {}), speakers),
        vowel_clusters=_vowel_clusters(root),
        noise_scale=inference.number("noise_scale", 0.0, 10.0, 0.667),
        length_scale=inference.number("length_scale", 0.01, 100.0, 1.0),
        noise_w=inference.number("noise_w", 0.0, 10.0, 0.8),
        hop_length=root.integer("hop_length", 1, 65_536, 256),
        default_speaker_id=root.integer("default_speaker_id", 0, speakers - 1, 0),
    )


class _Entry:
    """A JSON object and where it stands, for errors."""

    def __init__(self, content: object, source: str, path: str) -> None:
        self.source, self.path = source, path
        if not isinstance(content, dict):
            raise self.error("", f"is {_shown(content)}; it must be an object")
        self.content: dict[str, Any] = content

    def error(self, key: str, problem: str) -> ModelFileError:
        where = ".".join(part for part in (self.path, key) if part) or "the file"
        return ModelFileError(f"{self.source}: {where} {problem}")

    def value(self, key: str, default: object = None) -> Any:
        value = self.content.get(key, default)
        if value is None:
            raise self.error(key, "is missing, so this isn't a Piper voice's settings")
        return value

    def mapping(self, key: str, default: object = None) -> _Entry:
        return _Entry(self.value(key, default), self.source, ".".join(part for part in (self.path, key) if part))

    def text(self, key: str, default: str | None = None) -> str:
        value = self.value(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"is {_shown(value)}; it must be a text")
        return value

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, f"is {_shown(value)}; it must be a whole number from {low:,} to {high:,}")
        return value

    def number(self, key: str, low: float, high: float, default: float) -> float:
        value = self.value(key, default)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise self.error(key, f"is {_shown(value)}; it must be a number from {low:g} to {high:g}")
        return float(value)


def _espeak_voice(espeak: _Entry) -> str:
    voice = espeak.text("voice")
    if voice and not _ESPEAK_VOICE.fullmatch(voice):
        raise espeak.error("voice", f"is {_shown(voice)}; it must be a voice's name such as 'en-us', without a path")
    return voice


def _phoneme_type(root: _Entry) -> str:
    name = root.text("phoneme_type", "espeak")
    if name not in PHONEME_TYPES:
        raise root.error("phoneme_type", f"is {_shown(name)}; known: {', '.join(PHONEME_TYPES)}")
    return name


def _phoneme_ids(entry: _Entry, symbols: int) -> Mapping[str, tuple[int, ...]]:
    if not 1 <= len(entry.content) <= MAX_SYMBOLS:
        raise entry.error("", f"has {len(entry.content):,} phonemes; it must have 1 to {MAX_SYMBOLS:,}")
    found = {}
    for phoneme, ids in entry.content.items():
        if not 1 <= len(phoneme) <= MAX_PHONEME_LENGTH:
            raise entry.error(
                "", f"has a phoneme of {len(phoneme):,} characters; it must have 1 to {MAX_PHONEME_LENGTH}"
            )
        if not _are_ids(ids, symbols):
            raise entry.error(phoneme, f"is {_shown(ids)}; it must be a list of symbol ids from 0 to {symbols - 1}")
        found[phoneme] = tuple(ids)
    return MappingProxyType(found)


def _speaker_ids(entry: _Entry, speakers: int) -> Mapping[str, int]:
    for name, speaker_id in entry.content.items():
        if not _is_id(speaker_id, speakers):
            raise entry.error(name, f"is {_shown(speaker_id)}; it must be a speaker id from 0 to {speakers - 1}")
    return MappingProxyType(dict(entry.content))


def _vowel_clusters(root: _Entry) -> frozenset[tuple[str, ...]]:
    clusters: object = root.content.get("vowel_clusters") or []
    if not isinstance(clusters, list) or len(clusters) > MAX_SYMBOLS or not all(_is_cluster(each) for each in clusters):
        raise root.error("vowel_clusters", f"is {_shown(clusters)}; it must be a list of lists of vowels")
    return frozenset(tuple(each) for each in clusters)


def _is_cluster(value: object) -> bool:
    parts: Sequence[object] = value if isinstance(value, (list, str)) else ()
    return 1 <= len(parts) <= MAX_PHONEME_LENGTH and all(isinstance(part, str) for part in parts)


def _are_ids(value: object, count: int) -> bool:
    return isinstance(value, list) and len(value) <= MAX_IDS_PER_PHONEME and all(_is_id(each, count) for each in value)


def _is_id(value: object, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def _shown(value: object) -> str:
    return reprlib.repr(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON allows")
