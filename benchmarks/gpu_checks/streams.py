"""Copies beside the computation: how many were there in time, and a step's time against the longer of the two."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from mizuoto_runtime.memory.copies import CopiesAhead, CopiesAtOnce

from ..figures import Figure
from ..models import LATENT, Dit, parameters, randomised
from ..rig import component
from ..timing import lap, median
from .place import Place

STEPS = 8
WARM_STEPS = 2
FRAMES = (256, 1024)
"""Few frames: the copies take longer; many: the computation does."""


class Counts:
    """Copies that a unit waited for (late), and those started before it was called (ahead)."""

    def __init__(self) -> None:
        self.late = 0
        self.ahead = 0


@contextmanager
def counted() -> Iterator[Counts]:
    """Count the copies of streamed units while the block runs."""
    counts = Counts()
    originals = [(kind, name, getattr(kind, name)) for kind in (CopiesAhead, CopiesAtOnce) for name in ("now", "later")]

    def counting(original: Callable[..., Any], field: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            setattr(counts, field, getattr(counts, field) + 1)
            return original(*arguments)

        return call

    for kind, name, original in originals:
        setattr(kind, name, counting(original, "late" if name == "now" else "ahead"))
    try:
        yield counts
    finally:
        for kind, name, original in originals:
            setattr(kind, name, original)


@torch.no_grad()
def section(place: Place) -> Iterator[Figure]:
    if not place.cuda:
        print("  copies ahead: not measured: they need a CUDA device; the simulated one copies at once")
    model = randomised(Dit(3 if place.small else 20))
    dtype = torch.bfloat16 if place.cuda else torch.float32
    model = model.to(dtype)
    for frames in FRAMES[:1] if place.small else FRAMES:
        yield from steps(place, model, frames, dtype)


def steps(place: Place, model: nn.Module, frames: int, dtype: torch.dtype) -> Iterator[Figure]:
    x = torch.randn(frames, LATENT, generator=torch.Generator().manual_seed(3)).to(place.name, dtype)
    time = torch.tensor([0.5], dtype=dtype, device=place.name)
    whole, streamed = component(copy.deepcopy(model), "oneshot"), component(copy.deepcopy(model), "oneshot")
    size_bytes = whole.size_bytes
    note = f"{parameters(model) / 1e6:.0f}M parameters, {dtype}, {frames} frames"
    ample = place.rig(2 * size_bytes)
    with ample.context().use([whole], 0):
        expected = whole.module(x, time)
        compute = timed_steps(place, whole.module, x, time)
    whole.unload()
    copying = copy_seconds(place, [unit.size_bytes for unit in streamed.costs()])
    for side_streams in (2, 0) if place.cuda else (0,):
        rig = place.rig(2 * size_bytes, mode="none", side_streams=side_streams)
        with rig.context().use([streamed], 0):
            for _ in range(WARM_STEPS):
                output = streamed.module(x, time)
            with counted() as counts:
                took = timed_steps(place, streamed.module, x, time)
            if not torch.equal(output, expected):
                raise AssertionError(f"another output with {side_streams} side streams, {frames} frames")
        streamed.unload()
        which = f"{side_streams} side streams, {frames} frames"
        if side_streams:
            yield Figure(
                name=f"copies that were started ahead, {which}", value=counts.ahead / (counts.ahead + counts.late),
                unit="x", at_least=0.95, note=f"{counts.ahead} ahead, {counts.late} late; {note}",
            )  # fmt: skip
        floor = max(compute, copying) if side_streams else compute + copying
        words = "max(compute, copy)" if side_streams else "(compute + copy)"
        yield Figure(
            name=f"streamed step / {words}, {which}", value=took / floor, unit="x",
            at_most=1.15 if side_streams else None, budget_bytes=rig.size_bytes, peak_bytes=rig.peak_bytes,
            note=f"step {1e3 * took:.2f} ms, compute {1e3 * compute:.2f}, copy {1e3 * copying:.2f}; {note}",
        )  # fmt: skip


def timed_steps(place: Place, module: nn.Module, *arguments: torch.Tensor) -> float:
    """Median seconds of a step, the device's work included."""
    place.wait()

    def step() -> None:
        module(*arguments)
        place.wait()

    return median([lap(step) for _ in range(STEPS)])


def copy_seconds(place: Place, sizes: list[int]) -> float:
    """Median seconds to copy blocks of those sizes from RAM, page-locked where there is CUDA, into two in turn."""
    sources = [torch.zeros(size, dtype=torch.uint8, pin_memory=place.cuda) for size in sizes]
    targets = [torch.zeros(max(sizes), dtype=torch.uint8, device=place.name) for _ in range(2)]

    def run() -> None:
        for number, source in enumerate(sources):
            targets[number % 2][: source.numel()].copy_(source, non_blocking=True)
        place.wait()

    run()
    return median([lap(run) for _ in range(STEPS)])
