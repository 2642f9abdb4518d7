"""What libraries in Rust do with input that they didn't expect: they panic, which is no `Exception` in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

PANICS = "pyo3_runtime"
"""The module of their class, which can't be imported."""


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """A panic in the block becomes a RuntimeError, so that `except Exception` finds it."""
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != PANICS:
            raise
        raise RuntimeError(str(error)) from error
