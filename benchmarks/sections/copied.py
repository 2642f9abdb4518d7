"""Bytes copied against bytes that aren't resident: each is to be copied once a token."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import torch

from mizuoto_runtime.memory.handle import ModelHandle

from ..figures import Figure
from ..models import MB, Block, Scheduled, randomised
from ..rig import Rig, component, room
from .options import Options

LAYERS = 24
LAYER_BYTES = 1 * MB
TOKENS = 16
SHARES = (0.0, 0.25, 0.5, 0.75, 0.95)
ONCE = tuple(range(LAYERS))
IN_A_ROW = tuple(index for index in range(LAYERS) for _ in range(3))
"""Every layer three times in a row, as with the halves of guidance and with beams."""


def layers(order: Sequence[int]) -> ModelHandle:
    return component(randomised(Scheduled([Block(LAYER_BYTES) for _ in range(LAYERS)], order)))


def not_resident(handle: ModelHandle) -> int:
    resident = set(handle.resident)
    return sum(unit.size_bytes for unit in handle.costs() if unit.name not in resident)


@torch.no_grad()
def section(options: Options) -> Iterator[Figure]:
    for name, order in (("each layer once a token", ONCE), ("each layer three times in a row", IN_A_ROW)):
        for share in SHARES:
            yield one_job(name, order, share)
    yield from two_jobs()


def one_job(name: str, order: Sequence[int], share: float) -> Figure:
    handle = layers(order)
    rig = Rig(room([handle], share), strict=True)
    ctx = rig.context()
    with ctx.use([handle], 0):
        expected = TOKENS * not_resident(handle)
        for _ in range(TOKENS):
            handle.module(torch.ones(1, Block.CHANNELS))
    return copied(f"{name}, {share:.0%} of the room", ctx.memory_report().streamed_bytes, expected, rig)


def copied(name: str, streamed_bytes: int, expected: int, rig: Rig) -> Figure:
    return Figure(
        name=f"copied / not resident: {name}", value=streamed_bytes / expected, unit="x", at_most=1.0, at_least=1.0,
        budget_bytes=rig.size_bytes, peak_bytes=rig.peak_bytes, note=f"{streamed_bytes / TOKENS:,.0f} bytes a token",
    )  # fmt: skip


def two_jobs() -> Iterator[Figure]:
    """Two requests, a thread and a handle each with half of its size, that take turns at every layer."""
    handles = [layers(ONCE) for _ in range(2)]
    rig = Rig(room(handles, 1.0), strict=True, mode="low")
    meet = threading.Barrier(2)
    results: dict[int, tuple[int, int]] = {}

    def request(number: int) -> None:
        handle, ctx = handles[number], rig.context()
        with torch.no_grad(), ctx.use([handle], 0):
            expected = TOKENS * not_resident(handle)
            handle.module.between = meet.wait
            for _ in range(TOKENS):
                handle.module(torch.ones(1, Block.CHANNELS))
        results[number] = ctx.memory_report().streamed_bytes, expected

    threads = [threading.Thread(target=request, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) < 2:
        raise RuntimeError("a request of the two failed; its error is above")
    for number, (streamed_bytes, expected) in sorted(results.items()):
        yield copied(f"two jobs interleaved, job {number + 1}", streamed_bytes, expected, rig)
