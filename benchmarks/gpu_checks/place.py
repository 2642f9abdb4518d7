"""Where the checks run: an NVIDIA card, or the CPU playing one, so that all but CUDA itself is tried anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..rig import SIMULATED, Rig

SIMULATED_BYTES = 8 << 30
MB = 1 << 20


class NotHere(Exception):
    """Why a check can't run on this machine."""


@dataclass(frozen=True)
class Place:
    """name: the device as torch names it; "cpu" is the simulated one. small: models are to be small too."""

    name: str
    small: bool

    @property
    def cuda(self) -> bool:
        return self.name != SIMULATED

    @property
    def described(self) -> str:
        if not self.cuda:
            return "no CUDA device: the CPU playing one"
        found = torch.cuda.get_device_properties(self.name)
        return f"{found.name}, {found.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"

    def rig(self, size_bytes: int, **policy: Any) -> Rig:
        """A manager of which handles may hold `size_bytes`; strict where the device is simulated."""
        return Rig(size_bytes, self.name, strict=not self.cuda, **policy)

    def wait(self) -> None:
        """Return when the device has done everything."""
        if self.cuda:
            torch.cuda.synchronize(self.name)

    def need_cuda(self, what: str) -> None:
        if not self.cuda:
            raise NotHere(f"{what} needs a CUDA device")


def find_place() -> Place:
    if torch.cuda.is_available():
        return Place("cuda:0", small=False)
    return Place(SIMULATED, small=True)
