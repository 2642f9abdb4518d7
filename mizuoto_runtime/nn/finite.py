"""Whether what a model computes is numbers: asked where choosing or rounding would hide that it isn't."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotFinite

if TYPE_CHECKING:
    from torch import Tensor


def is_finite(values: Tensor) -> bool:
    """Without another tensor of that size: the least and the greatest are NaN if any value is. Waits for the device."""
    return not values.numel() or all(bool(bound.isfinite()) for bound in values.aminmax())


def check_finite(values: Tensor, what: str) -> None:
    """NotFinite, which calls the values `what`, unless all of them are finite."""
    if not is_finite(values):
        raise NotFinite(what)
