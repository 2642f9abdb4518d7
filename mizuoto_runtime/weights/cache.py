"""Keeps converted weights beside the file they were converted from, in a folder `.mizuoto`.

Keyed by content: the converted file's name holds the first half of the source's SHA-256, and a note holds the whole of
it, with the converted file's own. Neither file is hashed again while its size, inode and times are those in the note;
times younger than two seconds are never trusted, since a later write could leave them as they are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .raw import RawTensor
from .store import replacing, write_safetensors

FOLDER = ".mizuoto"
YOUNG_NS = 2_000_000_000
ABANDONED_S = 3600.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger(__name__)


class WeightCache:
    """The converted weights of one source file. `form` names the layout and its version; another form is outdated."""

    def __init__(self, source: Path, form: str) -> None:
        self.source = source
        self.form = form
        self.folder = source.parent / FOLDER
        self.note = self.folder / f"{source.name}.json"

    def find(self) -> Path | None:
        """The converted file, if it belongs to what the source holds now and is what was written."""
        note = self._read_note()
        if note is None:
            return None
        path = self._path(note["source_sha256"])
        try:
            known = (identity(self.source), identity(path))
            trusted = None not in known and [list(each or ()) for each in known] == [note["source"], note["weights"]]
            if not trusted:
                if (sha256(self.source), sha256(path)) != (note["source_sha256"], note["weights_sha256"]):
                    return None
                self._write_note(note["source_sha256"], note["weights_sha256"])
        except (OSError, ValueError):
            return None
        return path

    def store(self, source_sha256: str, tensors: Mapping[str, RawTensor], metadata: Mapping[str, str]) -> Path | None:
        """Write the converted weights of the source, whose content has the digest `source_sha256`.

        None if they can't be written there, as in a read-only folder; that is logged and no error.
        """
        path = self._path(source_sha256)
        try:
            self.folder.mkdir(exist_ok=True)
            self._remove_abandoned()
            with replacing(path) as file:
                write_safetensors(file, tensors, metadata)
            self._write_note(source_sha256, sha256(path))
            self._remove_outdated(path)
        except OSError as error:
            _log.info("no cache for %s: %s", self.source.name, error)
            return None
        return path

    def _path(self, source_sha256: str) -> Path:
        return self.folder / f"{self.source.name}.{source_sha256[:32]}.safetensors"

    def _read_note(self) -> dict[str, Any] | None:
        try:
            note = json.loads(self.note.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(note, dict) or note.get("form") != self.form:
            return None
        digests = (note.get("source_sha256"), note.get("weights_sha256"))
        return note if all(isinstance(each, str) and _SHA256.fullmatch(each) for each in digests) else None

    def _write_note(self, source_sha256: str, weights_sha256: str) -> None:
        note = {
            "form": self.form,
            "source": identity(self.source),
            "source_sha256": source_sha256,
            "weights": identity(self._path(source_sha256)),
            "weights_sha256": weights_sha256,
        }
        with replacing(self.note) as file:
            file.write(json.dumps(note, indent=1).encode())

    def _remove_outdated(self, kept: Path) -> None:
        ours = re.compile(re.escape(self.source.name) + r"\.[0-9a-f]{32}\.safetensors")
        for path in self.folder.iterdir():
            if ours.fullmatch(path.name) and path != kept:
                with suppress(OSError):  # Windows removes no file that a loaded voice has mapped
                    path.unlink()

    def _remove_abandoned(self) -> None:
        for path in self.folder.glob("*.tmp"):
            with suppress(OSError):  # another process finished it in the meantime, or still has it open
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink()


def identity(path: Path) -> tuple[int, ...] | None:
    """Size, inode, and times in nanoseconds of last writing and last change; None if it was written just now."""
    stat = path.stat()
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < YOUNG_NS:
        return None
    return stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def sha256(path: Path) -> str:
    """The digest of a file's content. ValueError if it is empty, OSError if it can't be read."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        return hashlib.sha256(mapping).hexdigest()
