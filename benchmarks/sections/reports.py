"""How long a report waits while another thread places a large handle, beside one while it only copies as many bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import torch

from mizuoto_runtime.memory.handle import ModelHandle

from ..figures import Figure
from ..models import DecoderLm, randomised
from ..rig import Rig, component
from .options import Options

MARGIN_BYTES = 1 << 20
PAUSE_SECONDS = 0.0005
SHARE_OF_PLACING = 0.05
"""A report that waits for a placement waits for much of it; the interpreter's own turns take a few milliseconds."""


def section(options: Options) -> Iterator[Figure]:
    handle = component(randomised(DecoderLm(options.layers(24))))
    rig = Rig(handle.size_bytes + MARGIN_BYTES)
    ctx = rig.context()
    asked: dict[str, Callable[[], object]] = {
        "handle.loaded_bytes": lambda: handle.loaded_bytes,
        "ctx.memory_report()": ctx.memory_report,
        "manager.device.held_bytes()": rig.device.held_bytes,
    }
    source = torch.ones(handle.size_bytes, dtype=torch.uint8)
    for name, ask in asked.items():
        copying, _, _ = longest(ask, lambda: torch.empty_like(source).copy_(source))
        placing, took, times = longest(ask, lambda: place(rig, handle))
        handle.unload()
        yield Figure(
            name=f"longest {name} while placing", value=1e3 * placing, unit="ms", at_most=1e3 * SHARE_OF_PLACING * took,
            budget_bytes=rig.size_bytes, peak_bytes=rig.peak_bytes,
            note=f"{1e3 * copying:.2f} ms beside a raw copy; placed in {1e3 * took:.0f} ms, asked {times} times",
        )  # fmt: skip


def place(rig: Rig, handle: ModelHandle) -> None:
    with rig.context().use([handle], 0):
        pass


def longest(ask: Callable[[], object], work: Callable[[], object]) -> tuple[float, float, int]:
    """Seconds of the longest `ask` while another thread does `work`, those of `work`, and how often it was asked."""
    took: list[float] = []

    def run() -> None:
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)

    thread, waits = threading.Thread(target=run), [0.0]
    thread.start()
    while thread.is_alive():
        began = time.perf_counter()
        ask()
        waits.append(time.perf_counter() - began)
        time.sleep(PAUSE_SECONDS)
    thread.join()
    if not took:
        raise RuntimeError("the other thread failed; its error is above")
    return max(waits), took[0], len(waits) - 1
