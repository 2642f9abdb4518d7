"""Which of the files that may hold a checkpoint's tensors is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import ModelNotFound
from ...weights import stored
from ...weights.stored import Stored

STATE = "state_dict"


@contextmanager
def opened(folder: Path, *names: str) -> Iterator[Stored]:
    """The first of these files that is in `folder`. ModelNotFound, or as `stored.opened`."""
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise ModelNotFound(f"{folder}: has neither {' nor '.join(names)}; download the model again")
    with stored.opened(path, STATE) as file:
        yield file
