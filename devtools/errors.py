"""Errors that end a dev.py command with one clear message."""

from __future__ import annotations

from pathlib import Path


class DevError(Exception):
    """An expected failure. The message says what went wrong and what to do."""


def file_tail(path: Path, lines: int = 25) -> str:
    """The last lines of a log file, indented; empty if it can't be read."""
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in content.splitlines()[-lines:])
