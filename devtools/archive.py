"""Unpacks one folder of a zip file without trusting its member names."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from .errors import DevError

MAX_TOTAL_BYTES = 500 * 1024**2


def _checked_path(member: zipfile.ZipInfo) -> PurePosixPath:
    """The member's path; raises `DevError` if it could leave the target folder or isn't a plain file."""
    path = PurePosixPath(member.filename)
    unsafe = path.is_absolute() or ".." in path.parts or any(mark in member.filename for mark in "\\:\0")
    if unsafe:
        raise DevError(f"the archive is damaged or hostile: member {member.filename!r} points outside its folder")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise DevError(f"the archive is damaged or hostile: member {member.filename!r} is not a plain file")
    return path


def extract_folder(archive: Path, folder: str, target: Path) -> None:
    """Unpack every file below `folder` in a zip file into `target`, which must not exist.

    Raises `DevError` on an escaping or special member anywhere in the archive, on more than `MAX_TOTAL_BYTES`, on a
    damaged archive, and if nothing lies below `folder`. Nothing is written if a member's name is refused.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            members = [(_checked_path(member), member) for member in zipped.infolist()]
            wanted = [(p.relative_to(folder), m) for p, m in members if p.is_relative_to(folder) and not m.is_dir()]
            if not wanted:
                raise DevError(f"{archive.name} holds nothing below {folder}/")
            total_bytes = sum(member.file_size for _, member in wanted)
            if total_bytes > MAX_TOTAL_BYTES:
                raise DevError(f"{archive.name} unpacks to {total_bytes:,} bytes, more than {MAX_TOTAL_BYTES:,}")
            target.mkdir(parents=True)
            for path, member in wanted:
                destination = target / path
                destination.parent.mkdir(parents=True, exist_ok=True)
                with zipped.open(member) as source, destination.open("xb") as file:
                    shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, EOFError) as error:
        raise DevError(f"{archive.name} is damaged ({error}). Fetch it again") from error
