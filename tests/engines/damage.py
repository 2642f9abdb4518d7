"""Models whose files are damaged, or too large for half precision: weights that are no numbers."""

from __future__ import annotations

import torch

from mizuoto_runtime.library import ModelFiles
from mizuoto_runtime.session import Session

WRONG = (float("nan"), float("inf"))


def damage(session: Session, files: ModelFiles, weight: str, value: float) -> None:
    """Put `value` at the beginning of a weight of the session's model. weight: its component, a colon, its name."""
    component, _, name = weight.partition(":")
    handle = next(handle for handle in session.open(files).handles if handle.name == component)
    with torch.no_grad():
        handle.module.state_dict()[name].view(-1)[0] = value
