"""The check that every engine passes (M2): on a simulated, strict device the samples are the same, whatever streams."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mizuoto_runtime import conformance
from mizuoto_runtime.conformance import Case, device_of, exact_size
from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory.phase import Callbacks
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve

__all__ = ["check_failing_allocations", "check_streaming", "device_of", "exact_size", "simulated"]


def simulated(library: ModelLibrary, **compute: str) -> Session:
    """A session on a large simulated device; `compute`: further compute.* settings."""
    settings = {f"compute.{name}": value for name, value in compute.items()}
    return conformance.simulated(resolve(settings, {}), library)


def check_streaming(library: ModelLibrary, find: Callable[[Session], ModelFiles], request: SpeakRequest) -> None:
    """Plain, all streamed, halfway and whole agree sample for sample, and never hold more than they were given."""
    settings = resolve(environment={})
    files = find(Session(settings, library))
    results = list(conformance.conform(settings, library, files, request))
    assert [result.name for result in results] == ["plain", "none", "halfway", "whole"]
    for result in results:
        assert result.passed, result
        assert (result.streamed_mb > 0) is (result.name in ("none", "halfway")), result


def check_failing_allocations(
    library: ModelLibrary,
    find: Callable[[Session], ModelFiles],
    request: SpeakRequest,
    *,
    retry: bool,
    share: str,
    step: int = 1,
) -> int:
    """Fail the n-th allocation for every n, or every `step`-th; returns the n that a request no longer reaches.

    Each run is exact or one clear error; afterwards the books are true and the next run is exact.
    """
    plain = Session(resolve(environment={}), library)
    case = Case(plain, find(plain), request, Callbacks(), first=True)
    expected = case.samples
    assert expected is not None
    size_bytes = conformance.budgets(case.demands, case.total_bytes)[share]
    number = 1 - step
    while True:
        number += step
        session = simulated(library, oom_retry=str(retry).lower())
        with exact_size(session, size_bytes) as device:
            counter = _FailAt(number)
            device.before_allocation = counter
            try:
                assert torch.equal(session.speak(find(session), request).audio.samples, expected)
            except NotEnoughMemory as error:
                assert "simulated failure" in str(error) or "bytes are needed" in str(error)
                assert not retry or share == "none", "one failure is always survived where there is room to give up"
            handles = session.open(find(session)).handles
            assert all(not handle.busy for handle in handles)
            assert device.held_bytes() == sum(handle.held_bytes for handle in handles)
            device.before_allocation = None
            assert torch.equal(session.speak(find(session), request).audio.samples, expected)
            if not counter.failed:
                return number


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
