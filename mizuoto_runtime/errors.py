"""The tree of errors that the runtime raises on purpose.

Each message says what went wrong, with the figures, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_LISTED = 24


class MizuotoError(Exception):
    """Base of every error that the runtime raises on purpose. Its message can be written to any UTF-8 stream."""

    def __init__(self, message: str) -> None:
        super().__init__(message.encode("utf-8", "backslashreplace").decode("utf-8"))


class InputError(MizuotoError, ValueError):
    """The request itself is wrong: its text, an option or a value."""


class UnknownName(InputError):
    """A name that isn't among the known ones; the message lists them, of many the nearest."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown {what} {name!r}.{hint} Known: {_listed(str(name), names)}")
        self.name = name
        self.known = tuple(names)


def _listed(name: str, names: list[str]) -> str:
    if len(names) <= MAX_LISTED:
        return ", ".join(names) or "none"
    nearest = difflib.get_close_matches(name, names, n=MAX_LISTED // 2, cutoff=0.3) or names[: MAX_LISTED // 2]
    return f"{', '.join(nearest)} and {len(names) - len(nearest)} more"


class ModelNotFound(MizuotoError):
    """A model that is known or asked for, but isn't on this machine."""


class ModelBusy(MizuotoError):
    """A model that can't be moved or changed now, because a request uses it."""


class ModelNotLoaded(MizuotoError):
    """A model that isn't loaded, so that there is nothing to move."""


class ModelFileError(MizuotoError):
    """A model file that is missing a part, damaged, hostile, or of the wrong kind."""


class NotFinite(ModelFileError):
    """What a model computes is no numbers. what: which values of it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} aren't finite numbers. Half precision may be too narrow for this model: set compute.dtype to "
            "float32; else its weights are damaged: download them again"
        )


class MissingDependency(MizuotoError):
    """A Python package that this one engine or language needs and that isn't installed."""


class NotEnoughMemory(MizuotoError):
    """An allocation failed; the message says how much was asked for and how much was free."""


class Cancelled(MizuotoError):
    """The request was cancelled by whoever made it."""
