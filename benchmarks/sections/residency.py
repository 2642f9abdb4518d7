"""Which units stay: bytes that a request copies, over the fewest that any choice of residents and slots could."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.types import Kind

from ..figures import Figure
from ..models import MB, Block, Scheduled, randomised
from ..rig import Rig, component
from .optimum import fewest_bytes, floor_bytes
from .options import Options

SHARES = (0.25, 0.5, 0.75, 0.95)
WITHIN = 1.02


@dataclass(frozen=True)
class Pattern:
    """Units of these sizes that run in this order in a request. alike: groups of units that are interchangeable.

    once: units that an engine would mark as cold, since they run once a request. parts: layers of which the largest
    units consist; the runtime may divide those that are much larger than the others.
    """

    name: str
    kind: Kind
    sizes: Sequence[int]
    schedule: Sequence[int]
    alike: Sequence[Sequence[int]] = ()
    once: Sequence[int] = ()
    parts: int = 1

    def handle(self) -> ModelHandle:
        largest = max(self.sizes)
        units = [
            nn.Sequential(*(Block(size // self.parts) for _ in range(self.parts))) if size == largest else Block(size)
            for size in self.sizes
        ]
        return component(randomised(Scheduled(units, self.schedule)), self.kind)


def speech_lm(tokens: int) -> Pattern:
    """As IndexTTS 2's GPT, a thirtieth of its size: conditioning encoders of 1276 MB before 24 layers of 75 MB."""
    encoders = [round(size * MB / 30) for size in (190, 190, 190, 190, 160, 160, 98, 98)]
    first = len(encoders)
    layers = range(first, first + 24)
    return Pattern(
        name="run-once encoders, per-token layers", kind="sequence", sizes=[*encoders, *[75 * MB // 30] * 24],
        schedule=[*range(first), *list(layers) * tokens], alike=[layers, range(4), (4, 5), (6, 7)],
        once=range(first),
    )  # fmt: skip


def uneven(chunks: int) -> Pattern:
    """As a VAE's decoder: stages that differ much in size, each running once a chunk."""
    sizes = [round(size * MB) for size in (16, 8, 8, 4, 4, 2, 2, 1.25, 1.25, 1)]
    return Pattern("uneven units", "oneshot", sizes, [*range(len(sizes))] * chunks, parts=4)


def inner_loop(tokens: int) -> Pattern:
    """Layers once a token, then a small predictor of two layers, in turns, eight times a token."""
    layers = range(12)
    predictor = (12, 13)
    return Pattern(
        name="a loop inside each token", kind="sequence", sizes=[3 * MB] * 12 + [2 * MB] * 2,
        schedule=[*layers, *predictor * 8] * tokens, alike=[layers, predictor],
    )  # fmt: skip


@torch.no_grad()
def section(options: Options) -> Iterator[Figure]:
    tokens = 16 if options.quick else 32
    for pattern in (speech_lm(tokens), uneven(4), inner_loop(tokens // 4)):
        for share in SHARES:
            yield from requests(pattern, share)


def requests(pattern: Pattern, share: float) -> Iterator[Figure]:
    """The first request with and without marks, then a later one, at `share` of the handle's size."""
    handle = pattern.handle()
    rig = Rig(round(share * handle.size_bytes), strict=True)
    name = f"{pattern.name}, {share:.0%}"
    if handle.minimum_bytes(1) > rig.size_bytes:
        print(f"  {name}: not measured: at least {handle.minimum_bytes(1):,} bytes are needed, not {rig.size_bytes:,}")
        return
    sizes, schedule, alike = units_of(pattern, handle)
    room = rig.size_bytes - handle.fixed_bytes
    one_slot = fewest_bytes(sizes, schedule, room, alike, max_slots=1)
    any_slots = fewest_bytes(sizes, schedule, room, alike)
    first, second, third = (request(rig, handle) for _ in range(3))
    told = {"budget_bytes": rig.size_bytes, "peak_bytes": rig.peak_bytes, "unit": "x"}
    amounts = f"{one_slot / 1e6:,.1f} MB, with any slots {any_slots / 1e6:,.1f}"
    note = f"the fewest are {amounts}, for no scheme less than {floor_bytes(sizes, schedule, room) / 1e6:,.1f}"
    yield Figure(name=f"{name}: first request, no marks", value=first / one_slot, **told, note=note)
    if pattern.once:
        yield Figure(name=f"{name}: first request, marks", value=marked(pattern, rig.size_bytes) / one_slot, **told)
    for what, best in (("one slot", one_slot), ("any slots", any_slots)):
        yield Figure(
            name=f"{name}: second request / {what}", value=second / best, at_most=WITHIN, **told,
            note=f"third {third / best:.3f}",
        )  # fmt: skip


def request(rig: Rig, handle: ModelHandle) -> int:
    """Bytes that a request streams."""
    ctx = rig.context()
    with ctx.use([handle], 0):
        handle.module(torch.ones(1, Block.CHANNELS))
    return ctx.memory_report().streamed_bytes


def marked(pattern: Pattern, budget_bytes: int) -> int:
    """Bytes that the first request streams if what runs once is marked as cold."""
    handle = pattern.handle()
    for number in pattern.once:
        handle.mark(handle.module.units[number], "cold")
    return request(Rig(budget_bytes, strict=True), handle)


def units_of(pattern: Pattern, handle: ModelHandle) -> tuple[dict[int, int], list[int], list[list[int]]]:
    """Sizes, schedule and interchangeable units, of the units as the runtime divides them."""
    sizes: dict[int, int] = {}
    numbers: dict[int, list[int]] = {}
    for number, unit in enumerate(handle.costs()):
        sizes[number] = unit.size_bytes
        numbers.setdefault(int(unit.name.removeprefix("units.").partition(".")[0]), []).append(number)
    assert sorted(numbers) == list(range(len(pattern.sizes)))
    schedule = [number for unit in pattern.schedule for number in numbers[unit]]
    alike = [[numbers[unit][0] for unit in group] for group in pattern.alike]
    return sizes, schedule, alike
