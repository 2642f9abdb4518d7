"""Loads, uses and drops models again and again, and prints how much RAM the process held: a program for test_leaks."""

from __future__ import annotations

import ctypes
import gc
import json
from pathlib import Path

import torch
from torch import nn

from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.locks import SimulatedLocks
from tests.memory.test_manager import Rig
from tests.memory.tiny import Convolved, Tiny, linear, output

ROUNDS = 200
SETTLED = 40


class Large(nn.Module):
    """One megabyte, so that its host block is locked in place."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(128, 2048)
        self.narrow = nn.Linear(2048, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrowed: torch.Tensor = self.narrow(self.wide(x))
        return narrowed


def rss_bytes() -> int:
    """What the process holds, without what the C library keeps for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    locks = SimulatedLocks()
    rig = Rig(1 << 30)
    rig.manager.memory.locks_for = lambda device: locks
    most_pinned, held = 0, []
    for number in range(ROUNDS):
        normalise = nn.utils.parametrizations.weight_norm
        module = Tiny([Large(), Large(), linear(), Convolved(normalise)]).eval().requires_grad_(False)
        handle = ModelHandle("h", module, "sequence")
        rig.device.size_bytes = handle.size_bytes if number % 2 else handle.minimum_bytes(1)
        with rig.context().use([handle], 0):
            output(module)
        most_pinned = max(most_pinned, rig.manager.memory.pins.stats().pinned_bytes)
        del handle, module
        gc.collect()
        rig.manager.memory.pins.trim()
        held.append(rss_bytes())
    stats = rig.manager.memory.pins.stats()
    print(json.dumps({
        "rss_bytes": held[SETTLED:], "most_pinned": most_pinned, "pinned": stats.pinned_bytes,
        "registered": len(locks.registered), "device": rig.device.held_bytes(),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
