"""Measures how much working memory a phase took, from the peak statistics of the device's allocator (W3).

Working memory is the peak above what was there when the phase began, less what stays afterwards. Weights, and the slots
that they stream through, don't count: the phase's own are placed before it begins, and those that move meanwhile shift
what the peak is compared with.

An allocator has one peak. It is reset at each beginning and end, and whenever weights move; every measurement that runs
keeps the highest of the peaks between, so nested ones don't disturb each other.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .device import Device


class Peak(NamedTuple):
    """Bytes allocated now, and the most since the last reset."""

    current_bytes: int
    peak_bytes: int


class PeakSource(Protocol):
    """An allocator's statistics."""

    def measures(self, device: Device) -> bool:
        """Whether there are statistics of this device."""

    def turn(self, device: Device) -> Peak:
        """The peak until now; the next one begins here."""


@dataclass(eq=False)
class Measurement:
    """One that runs. base_bytes: what isn't working memory; mixed: another request's phase ran meanwhile."""

    device: Device
    base_bytes: int
    thread: int = field(default_factory=threading.get_ident)
    working_bytes: int = 0
    mixed: bool = False


class WorkingMemoryMeter(Protocol):
    """Measures the working memory of phases. All of it may be called by any thread."""

    def measures(self, device: Device) -> bool:
        """Whether anything can be measured on this device."""

    def start(self, device: Device) -> Measurement | None:
        """Begin, once the phase's weights are placed; None where nothing can be measured."""

    def stop(self, measurement: Measurement | None) -> int | None:
        """End; the bytes of working memory, None if they can't be told from another request's."""

    def moving(self, device: Device) -> AbstractContextManager[None]:
        """Around whatever places weights or lets go of them."""


class PeakMeter:
    """Measures by `source`.

    highest_bytes: the most that was allocated so far, by device; the allocator's own peak is no more than the last one.
    """

    def __init__(self, source: PeakSource | None = None) -> None:
        self.highest_bytes: dict[str, int] = {}
        self._source = source or TorchPeaks()
        self._lock = threading.Lock()
        self._running: weakref.WeakSet[Measurement] = weakref.WeakSet()

    def measures(self, device: Device) -> bool:
        return self._source.measures(device)

    def start(self, device: Device) -> Measurement | None:
        if not self._source.measures(device):
            return None
        with self._lock:
            measurement = Measurement(device, self._turn(device))
            self._running.add(measurement)
            self._mark_mixed(device)
            return measurement

    def stop(self, measurement: Measurement | None) -> int | None:
        if measurement is None:
            return None
        with self._lock:
            current = self._turn(measurement.device)
            self._running.discard(measurement)
        stays = max(0, current - measurement.base_bytes)
        return None if measurement.mixed else max(0, measurement.working_bytes - stays)

    def moving(self, device: Device) -> AbstractContextManager[None]:
        return self._moving(device) if self._source.measures(device) else nullcontext()

    @contextmanager
    def _moving(self, device: Device) -> Iterator[None]:
        with self._lock:
            before = self._turn(device)
            self._mark_mixed(device)
        try:
            yield
        finally:
            with self._lock:
                now = self._source.turn(device)
                self._remember(device, now)
                for measurement in self._on(device):
                    measurement.base_bytes += now.current_bytes - before

    def _turn(self, device: Device) -> int:
        """Give the peak until now to every measurement; returns what is allocated now."""
        now = self._source.turn(device)
        self._remember(device, now)
        for measurement in self._on(device):
            working = now.peak_bytes - measurement.base_bytes
            measurement.working_bytes = max(measurement.working_bytes, working)
        return now.current_bytes

    def _on(self, device: Device) -> list[Measurement]:
        return [measurement for measurement in self._running if measurement.device is device]

    def _mark_mixed(self, device: Device) -> None:
        """This thread begins something that shows in the peaks of other threads' measurements, and they in its own."""
        running = self._on(device)
        threads = {measurement.thread for measurement in running} | {threading.get_ident()}
        if len(threads) > 1:
            for measurement in running:
                measurement.mixed = True

    def _remember(self, device: Device, now: Peak) -> None:
        self.highest_bytes[device.name] = max(self.highest_bytes.get(device.name, 0), now.peak_bytes)


class TorchPeaks:
    """The statistics of torch's caching allocator on CUDA, ROCm and XPU: the one place that reads and resets them."""

    def measures(self, device: Device) -> bool:
        kind = device.name.partition(":")[0]
        if kind not in ("cuda", "xpu") or device.torch_device.type != kind:
            return False
        import torch

        module: Any = torch.xpu if kind == "xpu" else torch.cuda
        return bool(module.is_initialized())

    def turn(self, device: Device) -> Peak:
        import torch

        module: Any = torch.xpu if device.torch_device.type == "xpu" else torch.cuda
        allocated = module.memory_stats_as_nested_dict(device.torch_device)["allocated_bytes"]["all"]
        module.reset_peak_memory_stats(device.torch_device)
        return Peak(allocated["current"], allocated["peak"])

    def label(self, device: Device) -> str:
        """The device's model and torch's version: on others the same request may take other workspaces."""
        import torch

        module: Any = torch.xpu if device.torch_device.type == "xpu" else torch.cuda
        name = module.get_device_name(device.torch_device) if self.measures(device) else device.name
        return f"{name} torch {torch.__version__}"
