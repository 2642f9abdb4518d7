"""Settings that a user changes while a server runs: kept in a JSON file, below the environment, above mizuoto.toml."""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypedDict

from .errors import InputError, MizuotoError
from .settings import SETTINGS, Setting, Settings, Value, resolve, setting

LOG = logging.getLogger(__name__)
SOURCE = "saved"
MAX_FILE_BYTES = 1 << 20

SettingType = Literal["choice", "boolean", "integer", "optional_integer", "number", "text", "names", "address"]
TYPES: dict[type, SettingType] = {bool: "boolean", int: "integer", float: "number", str: "text", tuple: "names"}


class SettingFacts(TypedDict):
    """One setting for a dialog. source: where its value is from. locked: it can't be changed here.

    lock_reason: what to do instead. An `optional_integer` may be null.
    """

    name: str
    label: str
    help: str
    type: SettingType
    default: Value
    low: float | None
    high: float | None
    choices: list[str]
    value: Value
    source: str
    locked: bool
    lock_reason: str


class SavedSettings:
    """The settings of a server. path: the file. environment: None for the process's own."""

    def __init__(self, path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._environment = environment
        self._lock = threading.Lock()

    def resolve(self) -> Settings:
        """The settings in force. An entry of the file that can't be is left out and logged."""
        return self._with(self._read())

    def change(self, changes: Mapping[str, object]) -> Settings:
        """The settings with `changes`, which are kept; None takes a saved value back.

        InputError says what can't be, and then nothing is changed.
        """
        with self._lock:
            values = self._read()
            before = self._with(values)
            for name, value in changes.items():
                known = setting(name)
                reason = _lock_reason(known, before)
                if reason:
                    raise InputError(f"setting {name} can't be changed here: {reason}")
                values[name] = None if value is None else known.check(value, SOURCE)
            values = {name: value for name, value in values.items() if value is not None}
            after = self._with(values)
            self._write(values)
            return after

    def facts(self) -> list[SettingFacts]:
        """All settings, for a dialog."""
        return setting_facts(self.resolve())

    def _with(self, values: Mapping[str, Value]) -> Settings:
        return resolve(environment=self._environment, saved=values)

    def _read(self) -> dict[str, Value]:
        try:
            content = json.loads(self.path.read_bytes()[:MAX_FILE_BYTES]) if self.path.is_file() else {}
        except (OSError, ValueError) as error:
            LOG.warning("%s can't be read and is left out: %s", self.path, error)
            return {}
        return dict(self._checked(content)) if isinstance(content, dict) else {}

    def _checked(self, content: Mapping[str, object]) -> list[tuple[str, Value]]:
        checked = []
        for name, value in content.items():
            try:
                checked.append((name, setting(name).check(value, str(self.path))))
            except MizuotoError as error:
                LOG.warning("left out: %s", error)
        return checked

    def _write(self, values: Mapping[str, Value]) -> None:
        """The whole file or none of it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.part")
            part.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            part.replace(self.path)
        except OSError as error:
            raise InputError(f"settings can't be kept in {self.path}: {error}; nothing is changed") from error


def setting_facts(settings: Settings) -> list[SettingFacts]:
    """Every setting with its value in force."""
    return [_facts(known, settings) for known in SETTINGS]


def _facts(known: Setting, settings: Settings) -> SettingFacts:
    reason = _lock_reason(known, settings)
    return SettingFacts(
        name=known.name,
        label=known.label,
        help=known.help,
        type=_type(known),
        default=known.default,
        low=known.low,
        high=known.high,
        choices=list(known.choices),
        value=settings.values[known.name],
        source=settings.sources[known.name],
        locked=bool(reason),
        lock_reason=reason,
    )


def _type(known: Setting) -> SettingType:
    if known.default is None:
        return "optional_integer"
    if known.address:
        return "address"
    return "choice" if known.choices else TYPES[known.type]


def _lock_reason(known: Setting, settings: Settings) -> str:
    source = settings.sources[known.name]
    if not known.live:
        return f"it is read once, at the start; set {known.variable}, or write it into mizuoto.toml, and start again"
    if source in (known.variable, known.foreign):
        return f"the environment variable {source} is set and wins; unset it and start again"
    return ""
