"""Measured working memory: what a phase needed beside the weights, whatever runs inside it or beside it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mizuoto_runtime.memory.device import Device, PlainCpu, SimulatedDevice
from mizuoto_runtime.memory.workspace import PeakMeter, TorchPeaks
from tests.memory.live_bytes import LiveBytes
from tests.memory.meters import Allocator, LivePeaks

DEVICE = SimulatedDevice("cuda:0", 1 << 30, strict=True)
OTHER = SimulatedDevice("cuda:1", 1 << 30, strict=True)


class Rig:
    def __init__(self) -> None:
        self.allocator = Allocator()
        self.meter = PeakMeter(self.allocator)

    def transient(self, size_bytes: int) -> None:
        self.allocator.change(size_bytes)
        self.allocator.change(-size_bytes)

    def place(self, size_bytes: int, device: Device = DEVICE) -> None:
        with self.meter.moving(device):
            self.allocator.change(size_bytes)


def test_the_peak_above_the_weights_less_what_stays_is_working_memory() -> None:
    rig = Rig()
    rig.transient(5000)
    rig.place(1000)
    measurement = rig.meter.start(DEVICE)
    rig.transient(300)
    rig.allocator.change(50)
    rig.transient(200)
    assert rig.meter.stop(measurement) == 300 - 50
    assert rig.meter.highest_bytes == {"cuda:0": 5000}


def test_what_a_phase_frees_is_no_working_memory_of_it() -> None:
    rig = Rig()
    rig.allocator.change(500)
    measurement = rig.meter.start(DEVICE)
    rig.allocator.change(-400)
    rig.transient(100)
    assert rig.meter.stop(measurement) == 0


def test_trap_11_an_inner_measurement_does_not_erase_the_outer_peak() -> None:
    rig = Rig()
    outer = rig.meter.start(DEVICE)
    rig.transient(900)
    inner = rig.meter.start(DEVICE)
    rig.transient(100)
    assert rig.meter.stop(inner) == 100
    rig.transient(300)
    assert rig.meter.stop(outer) == 900


def test_trap_11_an_inner_peak_counts_for_the_outer_with_what_the_outer_holds() -> None:
    rig = Rig()
    outer = rig.meter.start(DEVICE)
    rig.allocator.change(200)
    inner = rig.meter.start(DEVICE)
    rig.transient(500)
    assert rig.meter.stop(inner) == 500
    rig.allocator.change(-200)
    assert rig.meter.stop(outer) == 700


def test_trap_11_weights_placed_or_freed_inside_are_not_the_outer_working_memory() -> None:
    rig = Rig()
    rig.place(1000)
    outer = rig.meter.start(DEVICE)
    rig.transient(300)
    with rig.meter.moving(DEVICE):
        rig.allocator.change(-400)
        rig.transient(5000)
        rig.allocator.change(2400)
    inner = rig.meter.start(DEVICE)
    rig.transient(350)
    assert rig.meter.stop(inner) == 350
    rig.place(-2000)
    rig.transient(100)
    assert rig.meter.stop(outer) == 350


def test_measurements_may_end_in_any_order_or_never() -> None:
    rig = Rig()
    first = rig.meter.start(DEVICE)
    second = rig.meter.start(DEVICE)
    rig.transient(10)
    assert rig.meter.stop(first) == 10
    rig.transient(30)
    assert rig.meter.stop(second) == 30
    abandoned = rig.meter.start(DEVICE)
    rig.transient(50)
    del abandoned
    last = rig.meter.start(DEVICE)
    assert rig.meter.stop(last) == 0
    assert not rig.meter._running


def in_thread(function: object) -> None:
    thread = threading.Thread(target=function)  # type: ignore[arg-type]
    thread.start()
    thread.join()


@pytest.mark.parametrize("what", ["measures", "places"])
def test_what_cannot_be_told_from_another_request_is_not_reported(what: str) -> None:
    rig = Rig()
    measurement = rig.meter.start(DEVICE)
    rig.transient(100)
    others: list[int | None] = []

    def beside() -> None:
        if what == "places":
            rig.place(1000)
        else:
            mine = rig.meter.start(DEVICE)
            rig.transient(30)
            others.append(rig.meter.stop(mine))

    in_thread(beside)
    assert rig.meter.stop(measurement) is None
    assert others == ([None] if what == "measures" else [])
    again = rig.meter.start(DEVICE)
    rig.transient(10)
    assert rig.meter.stop(again) == 10


def test_another_device_does_not_disturb() -> None:
    rig = Rig()
    measurement = rig.meter.start(DEVICE)
    in_thread(lambda: rig.place(0, OTHER))
    rig.transient(10)
    assert rig.meter.stop(measurement) == 10


@pytest.mark.parametrize("device", [PlainCpu(), DEVICE])
def test_on_a_cpu_nothing_is_measured(device: Device) -> None:
    meter = PeakMeter()
    with meter.moving(device):
        measurement = meter.start(device)
    assert measurement is None
    assert meter.stop(measurement) is None
    assert f"torch {torch.__version__}" in TorchPeaks().label(device)


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_torch_statistics_are_read_then_reset(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    stats = {"allocated_bytes": {"all": {"current": 3, "peak": 9}}}

    def read(device: torch.device) -> object:
        calls.append(f"read {device}")
        return stats

    monkeypatch.setattr(getattr(torch, kind), "is_initialized", lambda: True)
    monkeypatch.setattr(getattr(torch, kind), "memory_stats_as_nested_dict", read)
    monkeypatch.setattr(getattr(torch, kind), "reset_peak_memory_stats", lambda device: calls.append(f"reset {device}"))
    monkeypatch.setattr(getattr(torch, kind), "get_device_name", lambda device: "Card")
    device: Device = SimpleNamespace(name=kind, plain=False, torch_device=torch.device(kind, 0))  # type: ignore[assignment]
    source = TorchPeaks()
    assert source.measures(device)
    assert source.turn(device) == (3, 9)
    assert calls == [f"read {kind}:0", f"reset {kind}:0"]
    assert source.label(device) == f"Card torch {torch.__version__}"


def test_real_tensors_of_nested_phases_are_measured_exactly() -> None:
    with LiveBytes() as live:
        meter = PeakMeter(LivePeaks(live))
        outer = meter.start(DEVICE)
        hidden = torch.zeros(1000)
        with meter.moving(DEVICE):
            layer = nn.Linear(100, 200)
        inner = meter.start(DEVICE)
        wide = torch.nn.functional.gelu(layer(hidden.reshape(10, 100)))
        del wide
        assert meter.stop(inner) == 4 * 2 * 10 * 200
        hidden = hidden + 1
        assert meter.stop(outer) == 4 * (1000 + 2 * 10 * 200) - 4 * 1000
