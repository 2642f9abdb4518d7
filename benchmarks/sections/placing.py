"""How fast weights get to the device and leave it, beside copying and freeing the same bytes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mizuoto_runtime.memory.handle import ModelHandle

from ..figures import Figure
from ..models import DecoderLm, randomised
from ..rig import Rig, component
from ..timing import lap, median, median_of
from .options import Options

MARGIN_BYTES = 1 << 20
COPYING = ("copy_", "_to_copy", "clone", "contiguous", "cat", "index_select")
RAW = {"blocks": "fresh blocks, one a unit", "fresh": "one fresh block", "ready": "a block that is there"}


class BytesMoved(TorchDispatchMode):
    """Counts the bytes of tensors that operations copy."""

    size_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in COPYING and isinstance(result, Tensor) and not result.is_meta:
            self.size_bytes += result.nbytes
        return result


def section(options: Options) -> Iterator[Figure]:
    yield from placing(options)
    yield from yielding(options)


def placing(options: Options) -> Iterator[Figure]:
    """Bandwidth of placing a whole handle over that of a raw copy of as many bytes."""
    for host_copies in ("on", "off"):
        handle = component(randomised(DecoderLm(options.layers(12))))
        rig = Rig(handle.size_bytes + MARGIN_BYTES, host_copies=host_copies)
        size_bytes = handle.size_bytes
        source = torch.ones(size_bytes, dtype=torch.uint8)
        ready = torch.ones(size_bytes, dtype=torch.uint8)
        blocks = [unit.size_bytes for unit in handle.costs()]
        ways: dict[str, Callable[[], object]] = {
            "place": lambda rig=rig, handle=handle: enter(rig, handle),
            "ready": lambda ready=ready, source=source: ready.copy_(source),
            "fresh": lambda source=source: torch.empty_like(source).copy_(source),
            "blocks": lambda source=source, blocks=blocks: in_blocks(source, blocks),
        }
        seconds = rounds_of(ways, options.count(9, 3), handle.unload)
        kept = "host copies kept" if host_copies == "on" else "no host copies"
        for way, what in RAW.items():
            yield Figure(
                name=f"placing, {kept} / raw copy into {what}",
                value=median_of(seconds, lambda each, way=way: each[way] / each["place"]), unit="x",
                at_least=0.9 if way == "blocks" else None, budget_bytes=rig.size_bytes, peak_bytes=rig.peak_bytes,
                note=f"{size_bytes / median(seconds['place']) / 1e9:.2f} GB/s",
            )  # fmt: skip


def enter(rig: Rig, handle: ModelHandle) -> None:
    with rig.context().use([handle], 0):
        assert handle.whole


def in_blocks(source: Tensor, sizes: list[int]) -> list[Tensor]:
    """Copies of the source's parts in fresh blocks of those sizes, and one of the rest."""
    start, copies = 0, []
    for size_bytes in (*sizes, source.numel() - sum(sizes)):
        copies.append(torch.empty(size_bytes, dtype=torch.uint8).copy_(source[start : start + size_bytes]))
        start += size_bytes
    return copies


def rounds_of(
    ways: dict[str, Callable[[], object]], rounds: int, after: Callable[[], object]
) -> dict[str, list[float]]:
    """Seconds of each way in turns; `after` undoes what a way did and isn't measured."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            took = lap(way)
            after()
            if number:
                seconds[name].append(took)
    return seconds


def yielding(options: Options) -> Iterator[Figure]:
    """Letting go of half a model with host copies: its time over that of freeing as many bytes, and bytes moved."""
    handle = component(randomised(DecoderLm(options.layers(24))))
    rig = Rig(handle.size_bytes + MARGIN_BYTES)
    half = handle.size_bytes // 2
    ratios, freed, moved = [], 0, 0
    for number in range(options.count(20, 20) + 1):
        enter(rig, handle)
        before = set(handle.resident)
        gc.collect()
        if not number:  # the bytes are counted in a round of its own, since counting takes time
            with BytesMoved() as counter:
                freed = handle.partially_unload(half)
            moved = counter.size_bytes
            left = [unit.size_bytes for unit in handle.costs() if unit.name in before - set(handle.resident)]
            continue
        freeing = 0.0 if number % 2 else lap(blocks_to_free(left))
        took = lap(lambda: handle.partially_unload(half))
        ratios.append(took / (freeing or lap(blocks_to_free(left))))
    memory = {"budget_bytes": rig.size_bytes, "peak_bytes": rig.peak_bytes}
    yield Figure(
        name="yielding half / freeing as many bytes", value=median(ratios), unit="x", at_most=1.2,
        note=f"{len(left)} units, {freed:,} bytes", **memory,
    )  # fmt: skip
    yield Figure(name="bytes moved while yielding half", value=moved, unit="bytes", at_most=0, **memory)


def blocks_to_free(sizes: list[int]) -> Callable[[], object]:
    """Frees blocks of those sizes whose memory was written to."""
    return [torch.ones(size_bytes, dtype=torch.uint8) for size_bytes in sizes].clear
