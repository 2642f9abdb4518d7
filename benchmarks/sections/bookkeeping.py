"""What the runtime itself costs: per call of a streamed unit, for a whole handle, and to enter a phase.

Measured on one thread, each figure as it is in the quietest tenth of the rounds.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from mizuoto_runtime.memory.handle import ModelHandle

from ..figures import Figure
from ..models import Leaves, Scheduled, randomised
from ..rig import Rig, component, room
from ..timing import one_thread, quiet, take_turns
from .options import Options

LEAF_WIDTH = 64
UNITS = 8
LAYERS = 24
AMPLE_BYTES = 1 << 30
CALLS_PER_ROUND = 2


def stack(units: int) -> nn.Module:
    return randomised(Scheduled([Leaves(LEAF_WIDTH) for _ in range(units)], range(units)))


@torch.no_grad()
def calls(options: Options) -> Iterator[Figure]:
    """Microseconds of one call of a unit with seven leaves: plain, whole, and streamed less plain and raw copy."""
    plain = stack(UNITS)
    streamed, whole = component(copy.deepcopy(plain)), component(copy.deepcopy(plain))
    x = torch.randn(1, LEAF_WIDTH)
    expected = plain(x)
    unit_bytes = streamed.costs()[0].size_bytes
    none, ample = Rig(AMPLE_BYTES, mode="none"), Rig(AMPLE_BYTES)
    with none.context().use([streamed], 0), ample.context().use([whole], 0):
        assert torch.equal(streamed.module(x), expected) and torch.equal(whole.module(x), expected)
        assert streamed.resident == () and whole.whole
        ways = {
            "plain": lambda: plain(x),
            "raw": raw_copies(unit_bytes, UNITS),
            "streamed": lambda: streamed.module(x),
            "whole": lambda: whole.module(x),
        }
        seconds = take_turns(ways, options.count(1500, 200), CALLS_PER_ROUND, warm_up=20)
    per_call = {name: 1e6 * quiet(values) / UNITS for name, values in seconds.items()}
    beyond = per_call["streamed"] - per_call["plain"] - per_call["raw"]
    note = f"unit of {unit_bytes:,} bytes in 7 leaves"
    yield Figure(name="plain call", value=per_call["plain"], unit="µs", note=note)
    yield Figure(name="raw copy of the unit", value=per_call["raw"], unit="µs")
    yield Figure(
        name="streamed call", value=per_call["streamed"], unit="µs",
        budget_bytes=none.size_bytes, peak_bytes=none.peak_bytes,
    )  # fmt: skip
    yield Figure(name="bookkeeping: streamed - plain - raw copy", value=beyond, unit="µs", at_most=15)
    yield Figure(
        name="whole handle / plain", value=per_call["whole"] / per_call["plain"], unit="x", at_most=1.02,
        budget_bytes=ample.size_bytes, peak_bytes=ample.peak_bytes,
    )  # fmt: skip
    pairs = zip(whole.module.modules(), plain.modules(), strict=True)
    changed = sum(type(ours) is not type(theirs) for ours, theirs in pairs)
    yield Figure(name="modules of the whole handle that aren't of their own class", value=changed, unit="", at_most=0)


def raw_copies(unit_bytes: int, units: int) -> Callable[[], None]:
    """Copies as many blocks as there are units into one, one after the other."""
    sources = [torch.zeros(unit_bytes, dtype=torch.uint8) for _ in range(units)]
    target = torch.zeros(unit_bytes, dtype=torch.uint8)

    def run() -> None:
        for source in sources:
            target.copy_(source)

    return run


@torch.no_grad()
def entering(options: Options) -> Iterator[Figure]:
    """Microseconds to enter and leave a phase whose handle is placed already, right after it ran."""
    for name, share, at_most in (("whole", 1.0, 50.0), ("half of it", 0.5, 150.0)):
        handle = component(stack(LAYERS))
        rig = Rig(room([handle], share))
        idle = phase_seconds(rig, handle, options.count(500, 100), lambda: None)
        x = torch.randn(1, LEAF_WIDTH)
        ran = phase_seconds(rig, handle, options.count(200, 50), lambda: handle.module(x))  # noqa: B023
        assert handle.whole is (share == 1.0)
        held = f"{len(handle.resident)} of {LAYERS} layers resident"
        for what, seconds in (("after a run", ran), ("idle", idle)):
            yield Figure(
                name=f"entering and leaving a placed phase, {name}, {what}", value=1e6 * seconds, unit="µs",
                at_most=at_most, budget_bytes=rig.size_bytes, peak_bytes=rig.peak_bytes, note=held,
            )  # fmt: skip


def phase_seconds(rig: Rig, handle: ModelHandle, rounds: int, inside: Callable[[], Tensor | None]) -> float:
    """Seconds of a phase without what happens inside, in a quiet round."""
    ctx, seconds = rig.context(), []
    for number in range(rounds + 5):
        began = time.perf_counter()
        phase = ctx.use([handle], 0)
        phase.__enter__()
        entered = time.perf_counter()
        inside()
        left = time.perf_counter()
        phase.__exit__(None, None, None)
        if number >= 5:
            seconds.append(time.perf_counter() - left + entered - began)
    return quiet(seconds)


def section(options: Options) -> Iterator[Figure]:
    with one_thread():
        yield from calls(options)
        yield from entering(options)
