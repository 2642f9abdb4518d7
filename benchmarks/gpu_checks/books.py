"""Peak memory of the device against the runtime's books."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..figures import Figure
from ..models import Leaves, Scheduled, randomised
from ..rig import component
from .place import MB, Place

WIDTH = 1024
UNITS = 16
ACTIVATIONS_BYTES = 4 * MB
"""What the model itself needs besides, and what torch's allocator rounds blocks up to."""
WORKSPACE_BYTES = 40 * MB
"""cuBLAS's, if it takes another one."""


@torch.no_grad()
def section(place: Place) -> Iterator[Figure]:
    x = torch.randn(1, WIDTH).to(place.name)
    spare = ACTIVATIONS_BYTES
    if place.cuda:
        torch.nn.functional.linear(x, torch.zeros(WIDTH, WIDTH, device=place.name))
        place.wait()
        spare += WORKSPACE_BYTES
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        handle = component(randomised(Scheduled([Leaves(WIDTH) for _ in range(UNITS)], range(UNITS))), "oneshot")
        slots = 3 if place.cuda else 1
        least = handle.minimum_bytes(slots)
        budget_bytes = round(least + share * (handle.size_bytes - least)) + (MB if share == 1 else 0)
        rig = place.rig(budget_bytes, side_streams=slots - 1)
        with rig.context().use([handle], 0):
            for _ in range(4):
                handle.module(x)
            place.wait()
            held = handle.held_bytes
        peak = rig.peak_bytes
        yield Figure(
            name=f"peak beyond what the books hold, {share:.0%} of the room", value=(peak - held) / 1e6, unit="MB",
            at_most=spare / 1e6, budget_bytes=rig.size_bytes, peak_bytes=peak, note=f"{held:,} bytes in the books",
        )  # fmt: skip
        yield Figure(name=f"books / budget, {share:.0%} of the room", value=held / budget_bytes, unit="x", at_most=1.0)
        handle.unload()
        left = rig.device.held_bytes()
        if not place.cuda and left:
            raise AssertionError(f"{left:,} bytes are still charged after the handle left")
