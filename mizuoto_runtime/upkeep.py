"""What may be done with the files of an installed model: compare them with what was published, and remove them."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .engines.spec import EngineSpec, ModelFile
from .errors import InputError, MizuotoError
from .fetch import digest_is_right
from .library import ModelFiles, ModelLibrary
from .types import Progress
from .weights.cache import FOLDER as CACHE_FOLDER

State = Literal["right", "missing", "wrong size", "wrong content"]
PART = ".part"


class RemovalFailed(MizuotoError):
    """Files that can't be removed; the message says which, and why."""


@dataclass(frozen=True)
class Verdict:
    """One published file of a model, and how what is installed compares."""

    path: Path
    state: State


def verify(
    spec: EngineSpec,
    name: str,
    library: ModelLibrary,
    progress: Callable[[Progress], None] = lambda progress: None,
    check: Callable[[], None] = lambda: None,
) -> list[Verdict]:
    """Compare an installed model's files with the published sizes and digests.

    InputError for a model of which none were published. check: called before each file; it raises to cancel.
    """
    files = library.find(spec, name)
    if files.path is None or files.variant is None or not files.variant.files:
        raise InputError(f"the {spec.label} model {name!r} was not published with digests; there is nothing to compare")
    folder = files.path if files.path.is_dir() else files.path.parent
    verdicts, total = [], len(files.variant.files)
    for number, file in enumerate(files.variant.files):
        check()
        progress(Progress(name, number, total))
        verdicts.append(Verdict(folder / file.path, _state(file, folder / file.path)))
    progress(Progress(name, total, total))
    return verdicts


def _state(file: ModelFile, path: Path) -> State:
    if not path.is_file():
        return "missing"
    if path.stat().st_size != file.size_bytes:
        return "wrong size"
    return "right" if digest_is_right(file, path) else "wrong content"


def remove(spec: EngineSpec, name: str, library: ModelLibrary) -> int:
    """Remove an installed model's files, and what was converted from them; returns the bytes given back.

    InputError for one that lies outside the pack's own folder, as in another pack's: that is somebody else's.
    """
    files = library.find(spec, name)
    own = library.folder(spec)
    if files.path is None:
        raise InputError(f"the {spec.label} model {name!r} is built in; it has no files")
    if not files.path.is_relative_to(own):
        raise InputError(f"{files.path} lies outside {own}; other programs may use it, so remove it by hand")
    paths = _own_files(files)
    size_bytes = sum(_size(path) for path in paths)
    for path in paths:
        try:
            _remove(path)
        except OSError as error:
            raise RemovalFailed(f"{path} can't be removed: {error.strerror or error}") from error
    for folder in (files.path.parent / CACHE_FOLDER, files.path.parent):
        _remove_empty(folder, own)
    return size_bytes


def _own_files(files: ModelFiles) -> list[Path]:
    assert files.path is not None
    if files.path.is_symlink() or files.path.is_dir():
        return [files.path]
    companions = [files.path.with_name(files.path.name + companion) for companion in files.companions]
    parts = [path.with_name(path.name + PART) for path in (files.path, *companions)]
    kept = [*(files.path.parent / CACHE_FOLDER).glob(f"{glob.escape(files.path.name)}.*")]
    return [path for path in (*companions, *parts, *kept, files.path) if path.is_symlink() or path.exists()]


def _size(path: Path) -> int:
    if path.is_symlink():
        return 0
    if path.is_dir():
        return sum(each.lstat().st_size for each in path.rglob("*") if each.is_file() and not each.is_symlink())
    return path.stat().st_size


def _remove(path: Path) -> None:
    """A link goes, what it leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _remove_empty(folder: Path, top: Path) -> None:
    while folder != top and folder.is_dir() and folder.is_relative_to(top) and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
