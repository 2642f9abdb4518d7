"""Meters for tests: one that is told what it measures, and peak statistics made of live tensors or written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mizuoto_runtime.memory.device import Device
from mizuoto_runtime.memory.workspace import Measurement, Peak
from tests.memory.live_bytes import LiveBytes


class ToldMeter:
    """Reports the given bytes, one for each measurement, in the order in which they end."""

    def __init__(self, measured_bytes: Sequence[int | None]) -> None:
        self.left = list(measured_bytes)
        self.running = 0

    def measures(self, device: Device) -> bool:
        return True

    def start(self, device: Device) -> Measurement:
        self.running += 1
        return Measurement(device, 0)

    def stop(self, measurement: Measurement | None) -> int | None:
        assert measurement is not None
        self.running -= 1
        return self.left.pop(0)

    @contextmanager
    def moving(self, device: Device) -> Iterator[None]:
        yield


class Allocator:
    """Peak statistics of an allocator that is told what is allocated."""

    def __init__(self) -> None:
        self.current_bytes = self.peak_bytes = 0

    def change(self, size_bytes: int) -> None:
        self.current_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)

    def measures(self, device: Device) -> bool:
        return not device.plain

    def turn(self, device: Device) -> Peak:
        peak = Peak(self.current_bytes, self.peak_bytes)
        self.peak_bytes = self.current_bytes
        return peak


class LivePeaks:
    """Peak statistics of the tensors that `live` counts."""

    def __init__(self, live: LiveBytes) -> None:
        self.live = live

    def measures(self, device: Device) -> bool:
        return True

    def turn(self, device: Device) -> Peak:
        peak = Peak(self.live.current_bytes, self.live.peak_bytes)
        self.live.peak_bytes = self.live.current_bytes
        return peak
