"""The check that every engine passes (M2): on a simulated, strict device the samples are the same, whatever streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from mizuoto_runtime.engines.registry import BUILT_IN, Engines
from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve

MB = 1 << 20
LARGE_MB = 4096
WORKING_BYTES = 1 << 30


def simulated(
    library: ModelLibrary, size_mb: int = LARGE_MB, *, engines: Engines = BUILT_IN, **compute: str
) -> Session:
    """A session on a simulated device; `compute`: further compute.* settings."""
    settings = {"compute.vram_reserve_mb": "0", "compute.simulate_vram_mb": str(size_mb)}
    settings |= {f"compute.{name}": value for name, value in compute.items()}
    return Session(resolve(settings, {}), library, engines=engines)


def plain_samples(
    library: ModelLibrary, find: Callable[[Session], ModelFiles], request: SpeakRequest, engines: Engines = BUILT_IN
) -> Tensor:
    """What the request gives on a plain CPU."""
    plain = Session(resolve(environment={}), library, engines=engines)
    return plain.speak(find(plain), request).audio.samples


def device_of(session: Session) -> SimulatedDevice:
    device = session.manager.device
    assert isinstance(device, SimulatedDevice)
    return device


def budgets(session: Session, files: ModelFiles) -> dict[str, int]:
    """Bytes of a device on which all units stream; half of the largest component's can stay; everything is whole."""
    handles = session.open(files).handles
    least = max(handle.minimum_bytes(1) for handle in handles)
    largest = max(handle.size_bytes for handle in handles)
    most = sum(handle.size_bytes for handle in handles)
    return {"none": least, "halfway": (least + largest) // 2, "whole": most + WORKING_BYTES}


@contextmanager
def exact_size(session: Session, size_bytes: int) -> Iterator[SimulatedDevice]:
    """Make the session's device exactly `size_bytes` large."""
    device = device_of(session)
    before, device.size_bytes, device.peak_bytes = device.size_bytes, size_bytes, 0
    try:
        yield device
    finally:
        device.size_bytes = before


def check_streaming(
    library: ModelLibrary, find: Callable[[Session], ModelFiles], request: SpeakRequest, engines: Engines = BUILT_IN
) -> None:
    """Plain, all streamed, halfway and whole agree sample for sample, and never hold more than they were given."""
    expected = plain_samples(library, find, request, engines)
    large = simulated(library, engines=engines)
    for name, size_bytes in budgets(large, find(large)).items():
        session = simulated(library, engines=engines)
        with exact_size(session, size_bytes) as device:
            output = session.speak(find(session), request)
            assert torch.equal(output.audio.samples, expected), f"{name}: other samples"
            assert device.peak_bytes <= size_bytes
            memory = output.meta["memory"]
            assert isinstance(memory, dict)
            assert (memory["streamed_mb"] > 0) is (name != "whole"), f"{name}: {memory}"
            session.close()
            assert device.held_bytes() == 0


def check_failing_allocations(
    library: ModelLibrary,
    find: Callable[[Session], ModelFiles],
    request: SpeakRequest,
    *,
    retry: bool,
    share: str,
    step: int = 1,
    engines: Engines = BUILT_IN,
    retriable: bool = True,
) -> int:
    """Fail the n-th allocation for every n, or every `step`-th; returns the n that a request no longer reaches.

    Each run is exact or one clear error; afterwards the books are true and the next run is exact. retriable: whether
    the request's phases all use `ctx.run`.
    """
    expected = plain_samples(library, find, request, engines)
    large = simulated(library, engines=engines)
    size_bytes = budgets(large, find(large))[share]
    number = 1 - step
    while True:
        number += step
        session = simulated(library, oom_retry=str(retry).lower(), engines=engines)
        with exact_size(session, size_bytes) as device:
            counter = _FailAt(number)
            device.before_allocation = counter
            try:
                assert torch.equal(session.speak(find(session), request).audio.samples, expected)
            except NotEnoughMemory as error:
                assert "simulated failure" in str(error) or "bytes are needed" in str(error)
                survivable = retry and retriable and share != "none"
                assert not survivable, "one failure is always survived where there is room to give up"
            device.before_allocation = None
            check_books(session, find(session), request, expected)
            if not counter.failed:
                return number


def check_books(session: Session, files: ModelFiles, request: SpeakRequest, expected: Tensor) -> None:
    """Nothing is in use, the device holds what the handles say, and the request is exact."""
    handles = session.open(files).handles
    assert all(not handle.busy for handle in handles)
    held_bytes = sum(handle.held_bytes for handle in handles)
    assert device_of(session).held_bytes() == held_bytes, "the books differ"
    assert torch.equal(session.speak(files, request).audio.samples, expected)


class _FailAt:
    """Fails one allocation, the one with this number."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.failed = False

    def __call__(self, size_bytes: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.failed = True
            raise NotEnoughMemory("simulated failure")
