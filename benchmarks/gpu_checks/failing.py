"""Memory that really runs out: the step runs again, with the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..figures import Figure
from ..models import Leaves, Scheduled, randomised
from ..rig import Rig, component
from .place import MB, SIMULATED_BYTES, Place

WIDTH = 512
UNITS = 12
SPARE_BYTES = 64 * MB


class Step:
    """Draws random numbers, runs the model, and takes all of the device's memory in its first `failures` runs."""

    def __init__(self, place: Place, rig: Rig, failures: int) -> None:
        self.place, self.rig, self.failures = place, rig, failures
        self.ctx = rig.context(seed=7)
        self.generator = torch.Generator().manual_seed(8)
        self.handle = component(randomised(Scheduled([Leaves(WIDTH) for _ in range(UNITS)], range(UNITS))))
        self.runs = 0
        self.hoarded_bytes = 0

    def __call__(self) -> Tensor:
        self.runs += 1
        x = torch.randn(4, WIDTH, generator=self.ctx.rng) + torch.randn(4, WIDTH, generator=self.generator)
        with torch.no_grad():
            y: Tensor = self.handle.module(x.to(self.place.name)).cpu()
        if self.runs <= self.failures:
            self.hoard()
        return y + torch.randn(4, WIDTH, generator=self.ctx.rng)

    def hoard(self) -> None:
        """Allocate until that fails."""
        held, size_bytes = [], 4096 * MB if self.place.cuda else 512 * MB
        while True:
            try:
                held.append(self.rig.device.allocate(size_bytes) if not self.place.cuda else self.on_card(size_bytes))
                self.hoarded_bytes += size_bytes
            except Exception:
                if size_bytes <= MB:
                    raise
                size_bytes //= 8

    def on_card(self, size_bytes: int) -> Tensor:
        """Past the runtime, as an operation of torch would: its own error is raised."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.place.name)

    def run(self) -> Tensor:
        return self.ctx.run("step", [self.handle], self, 0, generators=[self.generator])


def section(place: Place) -> Iterator[Figure]:
    results = {}
    for failures in (0, 1, 2):
        step = Step(place, place.rig(SIMULATED_BYTES), failures)
        results[failures] = step.run()
        same = torch.equal(results[failures], results[0])
        books = step.handle.held_bytes
        yield Figure(
            name=f"{failures} failed allocations: same result (1) or not (0)", value=float(same), unit="", at_least=1,
            note=f"{step.runs} runs, {step.hoarded_bytes / 1e9:.1f} GB hoarded, {books:,} bytes held afterwards",
        )  # fmt: skip
        if step.runs != failures + 1:
            raise AssertionError(f"{step.runs} runs for {failures} failures")
        step.handle.unload()
        if place.cuda:
            torch.cuda.empty_cache()
