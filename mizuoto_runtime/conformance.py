"""The check that every model passes (M2): the samples are the same, whatever of it streams.

On a CPU a simulated, strict device plays the accelerator, and a plain run is what the others must equal. On a real
accelerator the kernels differ from the CPU's, so there the runs must equal each other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from .engines.registry import BUILT_IN, Engines
from .errors import NotEnoughMemory
from .library import ModelFiles, ModelLibrary
from .memory.device import Device, SimulatedDevice
from .memory.handle import ModelHandle
from .session import Session, SpeakRequest
from .settings import Settings
from .types import Callbacks

MB = 1 << 20
LARGE_MB = 4096
OWN_SETTINGS = {
    "compute.vram_mode": "normal",
    "compute.vram_reserve_mb": "0",
    "compute.vram_limit_mb": "0",
}
"""What the cases set themselves, with what a whole run needs; besides, how large a simulated device is."""
SIMULATE = "compute.simulate_vram_mb"
SOURCE = "conformance"


@dataclass(frozen=True)
class Demand:
    """What one phase needs at once, in bytes: its handles at least, its handles whole, its working memory."""

    least_bytes: int
    size_bytes: int
    working_bytes: int


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One run. Figures in bytes.

    budget_bytes: the size of the device, or the limit that was set; None for all of it. peak_bytes: the most that was
    charged to a simulated device, weights and slots; on a real one the most that torch allocated there, working memory
    included, so only the first is judged. difference: the largest between two samples; None if they can't be compared.
    left_bytes: what was charged after the model was let go of. error: why there are no samples.
    """

    name: str
    device: str
    budget_bytes: int | None
    peak_bytes: int | None
    streamed_mb: float
    seconds: float
    difference: float | None
    equal: bool
    within_budget: bool
    left_bytes: int
    error: str = ""

    @property
    def passed(self) -> bool:
        return self.equal and self.within_budget and not self.left_bytes


def budgets(demands: Sequence[Demand], total_bytes: int) -> dict[str, int]:
    """Bytes of a device on which all units stream, half of what can of the largest phase, and none at all.

    none: the least of the neediest phase; an estimate of working memory refuses nothing. halfway: between the least
    and all of the largest phase, beside its working memory. whole: `total_bytes`, those of all handles, beside the
    largest working memory.
    """
    least = max((demand.least_bytes for demand in demands), default=0)
    largest = max(demands, key=lambda demand: demand.size_bytes, default=Demand(0, 0, 0))
    halfway = (largest.least_bytes + largest.size_bytes) // 2 + largest.working_bytes
    working = max((demand.working_bytes for demand in demands), default=0)
    return {"none": least, "halfway": max(least, halfway), "whole": total_bytes + working}


def simulated(settings: Settings, library: ModelLibrary, engines: Engines = BUILT_IN) -> Session:
    """A session on a large simulated device; `exact_size` makes it smaller."""
    texts = {**OWN_SETTINGS, SIMULATE: str(LARGE_MB), "compute.device": ""}
    return Session(settings.changed(texts, SOURCE), library, engines=engines)


def device_of(session: Session) -> SimulatedDevice:
    device = session.manager.device
    assert isinstance(device, SimulatedDevice)
    return device


@contextmanager
def exact_size(session: Session, size_bytes: int) -> Iterator[SimulatedDevice]:
    """Make the session's simulated device exactly `size_bytes` large, and count its peak anew."""
    device = device_of(session)
    before, device.size_bytes, device.peak_bytes = device.size_bytes, size_bytes, 0
    try:
        yield device
    finally:
        device.size_bytes = before


class Case:
    """One run of a request, with its samples. phases: the names of each one's handles, and its working memory."""

    def __init__(
        self, session: Session, files: ModelFiles, request: SpeakRequest, callbacks: Callbacks, *, first: bool = False
    ) -> None:
        self.phases: list[tuple[list[str], int]] = []
        self.seconds = 0.0
        self.samples: Tensor | None = None
        self.streamed_mb = 0.0
        self.error = ""
        self._session = session
        session.manager.before_load = self._note
        try:
            self._run(files, request, callbacks)
        except (NotEnoughMemory, RuntimeError) as error:
            if first:
                raise
            self.error = str(error)
        finally:
            session.manager.before_load = None

    def _run(self, files: ModelFiles, request: SpeakRequest, callbacks: Callbacks) -> None:
        self._session.open(files)
        started = time.perf_counter()
        output = self._session.speak(files, request, callbacks)
        self.seconds = time.perf_counter() - started
        self.samples = output.audio.samples
        memory = output.meta["memory"]
        assert isinstance(memory, Mapping)
        self.streamed_mb = memory["streamed_mb"]

    def _note(self, handles: Sequence[ModelHandle], working_bytes: int) -> None:
        self.phases.append(([handle.name for handle in handles], working_bytes))

    def budgets_in(self, session: Session, files: ModelFiles) -> dict[str, int]:
        """`budgets` for the same run in `session`: a plain CPU's weights may lie as they can't stream."""
        handles = {handle.name: handle for handle in session.open(files).handles}
        demands = [
            _demand(session, [handles[name] for name in names], working_bytes) for names, working_bytes in self.phases
        ]
        return budgets(demands, sum(handle.size_bytes for handle in handles.values()))


def _demand(session: Session, handles: Sequence[ModelHandle], working_bytes: int) -> Demand:
    least = session.manager.minimum_bytes(handles)
    return Demand(least, sum(handle.size_bytes for handle in handles), working_bytes)


def conform(
    settings: Settings,
    library: ModelLibrary,
    files: ModelFiles,
    request: SpeakRequest,
    callbacks: Callbacks | None = None,
    engines: Engines = BUILT_IN,
) -> Iterator[CaseResult]:
    """Run the cases where `compute.device` says, one after the other, each in a session of its own.

    The first is what the others are compared with; its errors are raised. An error of another one is in its result:
    too little memory, or a weight that is read while it isn't on the device.
    """
    on_cpu = settings.text("compute.device") in ("", "cpu")
    run = simulated_cases if on_cpu else device_cases
    yield from run(settings, library, files, request, callbacks or Callbacks(), engines)


def simulated_cases(
    settings: Settings,
    library: ModelLibrary,
    files: ModelFiles,
    request: SpeakRequest,
    callbacks: Callbacks,
    engines: Engines = BUILT_IN,
) -> Iterator[CaseResult]:
    """A plain run on the CPU, then simulated devices on which nothing, half and all of what can stream stays."""
    texts = {**OWN_SETTINGS, SIMULATE: "0", "compute.device": ""}
    plain = Session(settings.changed(texts, SOURCE), library, engines=engines)
    expected = Case(plain, files, request, callbacks, first=True)
    plain.close()
    yield _result("plain", plain.manager.device, expected, expected)
    for name in ("none", "halfway", "whole"):
        session = simulated(settings, library, engines)
        size_bytes = expected.budgets_in(session, files)[name]
        with exact_size(session, size_bytes) as device:
            case = Case(session, files, request, callbacks)
            session.close()
            yield _result(name, device, case, expected, budget_bytes=size_bytes, peak_bytes=device.peak_bytes)


def device_cases(
    settings: Settings,
    library: ModelLibrary,
    files: ModelFiles,
    request: SpeakRequest,
    callbacks: Callbacks,
    engines: Engines = BUILT_IN,
) -> Iterator[CaseResult]:
    """On `compute.device`: whole, all streamed, and halfway by a limit in whole megabytes."""
    expected: Case | None = None
    limit_mb = 0
    for name, mode in (("whole", "high"), ("none", "none"), ("halfway", "normal")):
        limit = limit_mb if name == "halfway" else 0
        texts = {**OWN_SETTINGS, "compute.vram_mode": mode, "compute.vram_limit_mb": str(limit)}
        session = Session(settings.changed(texts, SOURCE), library, engines=engines)
        device = session.manager.device
        _reset_peak(device)
        case = Case(session, files, request, callbacks, first=expected is None)
        expected = expected or case
        limit_mb = limit_mb or -(-expected.budgets_in(session, files)["halfway"] // MB)
        session.close()
        budget_bytes = limit * MB or None
        yield _result(name, device, case, expected, budget_bytes=budget_bytes, peak_bytes=_peak_bytes(device))
        device.empty_cache()


def _result(
    name: str,
    device: Device,
    case: Case,
    expected: Case,
    *,
    budget_bytes: int | None = None,
    peak_bytes: int | None = None,
) -> CaseResult:
    difference = _difference(case.samples, expected.samples)
    simulated_device = isinstance(device, SimulatedDevice)
    return CaseResult(
        name=name,
        device=device.name,
        budget_bytes=budget_bytes,
        peak_bytes=peak_bytes,
        streamed_mb=case.streamed_mb,
        seconds=case.seconds,
        difference=difference,
        equal=difference == 0.0,
        within_budget=not simulated_device or budget_bytes is None or (peak_bytes or 0) <= budget_bytes,
        left_bytes=device.held_bytes() if simulated_device else 0,
        error=case.error,
    )


def _difference(samples: Tensor | None, expected: Tensor | None) -> float | None:
    """The largest difference of two samples; 0.0 only if all are equal. None: other lengths, or not a number."""
    if samples is None or expected is None or samples.shape != expected.shape:
        return None
    if torch.equal(samples, expected):
        return 0.0
    largest = float((samples.double() - expected.double()).abs().max())
    return largest if math.isfinite(largest) else None


def _reset_peak(device: Device) -> None:
    if isinstance(device, SimulatedDevice):
        device.peak_bytes = 0
    elif device.torch_device.type in ("cuda", "xpu"):
        getattr(torch, device.torch_device.type).reset_peak_memory_stats(device.torch_device)


def _peak_bytes(device: Device) -> int | None:
    if isinstance(device, SimulatedDevice):
        return device.peak_bytes
    if device.torch_device.type not in ("cuda", "xpu"):
        return None
    return int(getattr(torch, device.torch_device.type).max_memory_allocated(device.torch_device))
