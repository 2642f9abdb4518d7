"""The file `mizuoto.toml`: where it is looked for, and what stands in it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import InputError, MissingDependency, UnknownName

FILE_NAME = "mizuoto.toml"
VARIABLE = "MIZUOTO_CONFIG"


def named_config(flag: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file that --config names, else the one that MIZUOTO_CONFIG names; InputError if it isn't there."""
    named, source = (flag, "--config") if flag is not None else (environment.get(VARIABLE), VARIABLE)
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_file():
        raise InputError(f"{source} names {path}, which isn't a file; make it, or leave {source} out")
    return path


def usual_config(environment: Mapping[str, str], folder: Path | None = None) -> Path | None:
    """The file in `folder` (the working directory if None), else the user's own; None if there is neither."""
    places = ((folder or Path()) / FILE_NAME, user_folder(environment) / FILE_NAME)
    return next((path for path in places if path.is_file()), None)


def user_folder(environment: Mapping[str, str]) -> Path:
    """Where the platform keeps a user's configuration, with a folder of ours in it."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming") / "mizuoto"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "mizuoto"
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "mizuoto"


def read_config(path: Path, known: Iterable[str]) -> dict[str, object]:
    """The settings in a file, by dotted name, unchecked; InputError names the file, and the line or the unknown name.

    known: the dotted names of all settings.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {error}") from error
    return dict(_flat(_parsed(path, text), _tree(known), path, ()))


def _parsed(path: Path, text: str) -> dict[str, object]:
    try:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
    except ModuleNotFoundError as error:
        advice = "install tomli with: pip install tomli, or use Python 3.11 or newer"
        raise MissingDependency(f"reading {path} needs the package tomli; {advice}") from error
    try:
        return dict(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} isn't valid TOML: {error}") from error


def _tree(names: Iterable[str]) -> dict[str, object]:
    """compute.device, compute.vram_mode → {"compute": {"device": None, "vram_mode": None}}."""
    tree: dict[str, object] = {}
    for name in names:
        *tables, key = name.split(".")
        branch = tree
        for table in tables:
            branch = branch.setdefault(table, {})  # type: ignore[assignment]
        branch[key] = None
    return tree


def _flat(
    content: Mapping[str, object], known: Mapping[str, object], path: Path, above: tuple[str, ...]
) -> Iterable[tuple[str, object]]:
    for key, value in content.items():
        name = ".".join((*above, key))
        if key not in known:
            raise UnknownName(f"key in [{'.'.join(above)}] of {path}" if above else f"table in {path}", key, known)
        below = known[key]
        if not isinstance(below, dict):
            yield name, value
        elif isinstance(value, dict):
            yield from _flat(value, below, path, (*above, key))
        else:
            raise InputError(f"{name} in {path} is {value!r}; it must be a table: [{name}] and keys below it")
