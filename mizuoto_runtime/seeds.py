"""Random numbers: always from an explicit generator, always on the CPU, so that placement never changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from torch import Generator

MAX_SEED = 2**64 - 1


def generator(seed: int) -> Generator:
    """A CPU generator for a seed from 0 to 2**64 − 1; the same as `torch.manual_seed(seed)` would give."""
    import torch

    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise InputError(f"the seed is {seed!r}; it must be a whole number from 0 to {MAX_SEED}")
    return torch.Generator().manual_seed(seed)
