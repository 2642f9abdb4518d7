"""Page-locking RAM where it lies, against copying into locked RAM and against pageable RAM; and its finalizers."""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..figures import Figure
from ..timing import median
from .place import MB, NotHere, Place

ROUNDS = 5


def section(place: Place) -> Iterator[Figure]:
    size_bytes = (64 if place.small else 1024) * MB
    yield from copying(place, size_bytes, "pageable", pageable(size_bytes))
    if place.cuda:
        yield from copying(place, size_bytes, "torch's locked", torch.ones(size_bytes, dtype=torch.uint8).pin_memory())
        yield from in_place(place, size_bytes)
    else:
        print("  locking itself: not measured: it needs a CUDA device")
    yield from runtime_pins(place, size_bytes)


def pageable(size_bytes: int) -> Tensor:
    """A block whose memory was written to."""
    return torch.ones(size_bytes, dtype=torch.uint8)


def copying(place: Place, size_bytes: int, what: str, source: Tensor) -> Iterator[Figure]:
    """Bandwidth from `source` to the device."""
    target = torch.zeros(size_bytes, dtype=torch.uint8, device=place.name)

    def run() -> None:
        target.copy_(source, non_blocking=True)
        place.wait()

    run()
    yield Figure(name=f"copying to the device from {what} RAM", value=bandwidth(size_bytes, run), unit="GB/s")


def bandwidth(size_bytes: int, run: Callable[[], object]) -> float:
    """GB/s of the median round."""
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return size_bytes / median(seconds) / 1e9


def in_place(place: Place, size_bytes: int) -> Iterator[Figure]:
    """cudaHostRegister on a pageable block, and what it costs beside a copy into locked memory."""
    block = pageable(size_bytes)
    registering, unregistering = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        register(block)
        registered = time.perf_counter()
        unregister(block)
        registering.append(registered - began)
        unregistering.append(time.perf_counter() - registered)
    yield Figure(
        name="locking in place", value=size_bytes / median(registering) / 1e9, unit="GB/s",
        note=f"unlocking {size_bytes / median(unregistering) / 1e9:.1f} GB/s",
    )  # fmt: skip
    copied = bandwidth(size_bytes, block.pin_memory)
    yield Figure(name="copying into locked RAM, fresh or kept by torch", value=copied, unit="GB/s")
    began = time.perf_counter()
    torch.empty(size_bytes + 5 * MB, dtype=torch.uint8, pin_memory=True)
    fresh = time.perf_counter() - began
    yield Figure(name="allocating fresh locked RAM", value=size_bytes / fresh / 1e9, unit="GB/s")
    register(block)
    try:
        if not block.is_pinned():
            raise AssertionError("torch doesn't see the registered block as pinned, so its copies would wait")
        yield from copying(place, size_bytes, "registered", block)
    finally:
        place.wait()
        unregister(block)


def register(block: Tensor) -> None:
    code = torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.nbytes, 0)
    if int(code):
        raise RuntimeError(f"cudaHostRegister of {block.nbytes:,} bytes failed with CUDA error {int(code)}")


def unregister(block: Tensor) -> None:
    code = torch.cuda.cudart().cudaHostUnregister(block.data_ptr())
    if int(code):
        raise RuntimeError(f"cudaHostUnregister failed with CUDA error {int(code)}")


def runtime_pins(place: Place, size_bytes: int) -> Iterator[Figure]:
    """The runtime's own books of locked RAM: blocks are locked, and given back when they are let go of."""
    if importlib.util.find_spec("mizuoto_runtime.memory.pinning") is None:
        raise NotHere("not supported yet: the runtime has no mizuoto_runtime.memory.pinning")
    from mizuoto_runtime.memory.locks import SimulatedLocks, locks_for
    from mizuoto_runtime.memory.pinning import Pins

    pins = Pins(locks_for(place.name) if place.cuda else SimulatedLocks(), lambda: 3 * size_bytes)
    target = torch.zeros(size_bytes, dtype=torch.uint8, device=place.name)
    rounds, locked = 20, 0
    for number in range(rounds):
        block = pins.allocate(size_bytes).fill_(number)
        locked += pins.holds(block)
        target.copy_(block, non_blocking=True)
        del block  # while the copy may still run: the finalizer waits for it
        gc.collect()
        place.wait()
        if int(target[-1]) != number or int(target[0]) != number:
            raise AssertionError(f"round {number}: the copy of a dropped block holds other bytes")
    yield Figure(name="runtime's blocks that were locked", value=locked / rounds, unit="x", at_least=1.0)
    yield Figure(name="runtime's locked bytes after all were dropped", value=pins.stats().pinned_bytes, unit="bytes",
                 at_most=0)  # fmt: skip
