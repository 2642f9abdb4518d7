"""The check that every engine passes (M2): on a simulated, strict device the samples are the same, whatever streams."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mizuoto_runtime import conformance
from mizuoto_runtime.conformance import Case, device_of, exact_size
from mizuoto_runtime.engines.registry import BUILT_IN, Engines
from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.nn import products
from mizuoto_runtime.nn.linear import PackedLinear
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Callbacks

__all__ = [
    "check_books",
    "check_failing_allocations",
    "check_packed",
    "check_streaming",
    "device_of",
    "exact_size",
    "simulated",
]

Find = Callable[[Session], ModelFiles]


def simulated(library: ModelLibrary, *, engines: Engines = BUILT_IN, **compute: str) -> Session:
    """A session on a large simulated device; `compute`: further compute.* settings."""
    settings = {f"compute.{name}": value for name, value in compute.items()}
    return conformance.simulated(resolve(settings, {}), library, engines)


class Expected:
    """What the request gives on a plain CPU, and the sizes of devices by how much can stay there."""

    def __init__(self, library: ModelLibrary, find: Find, request: SpeakRequest, engines: Engines = BUILT_IN) -> None:
        plain = Session(resolve(environment={}), library, engines=engines)
        case = Case(plain, find(plain), request, Callbacks(), first=True)
        assert case.samples is not None
        self.samples: Tensor = case.samples
        played = simulated(library, engines=engines)
        self.size_bytes = case.budgets_in(played, find(played))


def check_streaming(library: ModelLibrary, find: Find, request: SpeakRequest, engines: Engines = BUILT_IN) -> None:
    """Plain, all streamed, halfway and whole agree sample for sample, and never hold more than they were given."""
    settings = resolve(environment={})
    files = find(Session(settings, library, engines=engines))
    results = list(conformance.conform(settings, library, files, request, engines=engines))
    assert [result.name for result in results] == ["plain", "none", "halfway", "whole"]
    for result in results:
        assert result.passed, result
        assert (result.streamed_mb > 0) is (result.name in ("none", "halfway")), result


def check_packed(library: ModelLibrary, find: Find, dtype: torch.dtype) -> None:
    """On a CPU itself weights of `dtype` take its order, if it is faster so; played devices' don't."""
    plain, played = Session(resolve(environment={}), library), simulated(library)
    for session, expected in ((plain, dtype in products.PACKED_DTYPES), (played, False)):
        modules = [handle.module for handle in session.open(find(session)).handles]
        assert any(isinstance(part, PackedLinear) for module in modules for part in module.modules()) is expected


def check_failing_allocations(
    library: ModelLibrary,
    find: Find,
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
    expected = Expected(library, find, request, engines)
    number = 1 - step
    while True:
        number += step
        session = simulated(library, oom_retry=str(retry).lower(), engines=engines)
        with exact_size(session, expected.size_bytes[share]) as device:
            counter = _FailAt(number)
            device.before_allocation = counter
            try:
                assert torch.equal(session.speak(find(session), request).audio.samples, expected.samples)
            except NotEnoughMemory as error:
                assert "simulated failure" in str(error) or "bytes are needed" in str(error)
                survivable = retry and retriable and share == "whole"
                assert not survivable, "one failure is always survived where there is something to give up"
            device.before_allocation = None
            check_books(session, find(session), request, expected.samples)
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
