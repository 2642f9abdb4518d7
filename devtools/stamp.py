"""What is installed in `.venv`, so that a second run starts at once.

The stamp is a JSON object from group name to key. A key is a digest of everything that decides what is installed. A
group is forgotten before its installation begins and written after it has succeeded, so a half-done one is never
trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def digest(*parts: str | bytes) -> str:
    """SHA-256 over length-prefixed parts, in hexadecimal."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


class Stamp:
    """The record at `path` of which groups are completely installed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _read(self) -> dict[str, str]:
        try:
            groups = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(name): str(key) for name, key in groups.items()} if isinstance(groups, dict) else {}

    def _write(self, groups: dict[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        partial.write_text(json.dumps(groups, indent=1, sort_keys=True), encoding="utf-8")
        partial.replace(self.path)

    def has(self, group: str, key: str) -> bool:
        return self._read().get(group) == key

    def add(self, group: str, key: str) -> None:
        self._write({**self._read(), group: key})

    def forget(self, group: str) -> None:
        groups = self._read()
        if groups.pop(group, None) is not None:
            self._write(groups)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


def _try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _wait_lock(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        while not _try_lock(file):  # LK_LOCK gives up after ten seconds, so ask again
            with contextlib.suppress(OSError):
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                return
    else:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, which the operating system releases even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if not _try_lock(file):
            print("waiting for another dev.py that is setting up …", flush=True)
            _wait_lock(file)
        yield
