"""When a step is captured, when it is replayed, and when it must be captured anew (S8)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.lm.graphs import GraphedSteps
from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.locks import Locks, NoLocks, SimulatedLocks
from mizuoto_runtime.memory.pinning import Pins
from tests.lm.captured import FakeCapturer
from tests.memory.modules import WIDTH, Stack, linear
from tests.memory.placed import place_within


class Rig:
    """A component on a device that it fits by a share, and steps of it."""

    def __init__(self, share: float, locks: Locks | None = None, capturer: FakeCapturer | None = None) -> None:
        layers = [linear() for _ in range(4)]
        self.handle = ModelHandle("h", Stack(layers).eval().requires_grad_(False), "sequence")
        self.locks = locks or SimulatedLocks()
        self.capturer = capturer or FakeCapturer()
        self.capturer.handle = self.handle
        self.warnings: list[str] = []
        self.steps = GraphedSteps(self.handle, self.capturer, self.warnings.append)
        self.place(share)

    def place(self, share: float) -> None:
        least = self.handle.minimum_bytes(1)
        budget = round(least + share * (self.handle.size_bytes - least))
        device = SimulatedDevice("sim", self.handle.size_bytes, strict=True)
        place_within(budget, device, self.handle, pins=Pins(self.locks, lambda: 1 << 30))

    def step(self, number: int, rows: int = 1) -> Tensor:
        with torch.no_grad():
            return self.steps.run("step", self.handle.module, x(number, rows)).clone()


def x(number: int, rows: int = 1) -> Tensor:
    return torch.randn(rows, 3, WIDTH, generator=torch.Generator().manual_seed(number))


def eager(handle: ModelHandle, number: int, rows: int = 1) -> Tensor:
    with torch.no_grad():
        result: Tensor = handle.module(x(number, rows))
    return result


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_first_step_runs_the_second_is_captured_all_others_are_replayed(share: float) -> None:
    rig = Rig(share)
    for number in range(5):
        assert torch.equal(rig.step(number), eager(rig.handle, number))
    assert (rig.capturer.captures, rig.capturer.replays) == (1, 4)
    assert rig.warnings == []


def test_other_shapes_have_graphs_of_their_own() -> None:
    rig = Rig(1.0)
    for rows in (1, 2, 1, 2, 1, 2):
        assert torch.equal(rig.step(rows, rows), eager(rig.handle, rows, rows))
    assert (rig.capturer.captures, rig.capturer.replays) == (2, 4)


def test_weights_that_moved_are_captured_anew() -> None:
    rig = Rig(1.0)
    for share in (1.0, 0.0, 0.5, 1.0):
        rig.place(share)
        for number in range(3):
            assert torch.equal(rig.step(number), eager(rig.handle, number))
    assert rig.capturer.captures == 4
    rig.handle.unload()
    rig.place(1.0)
    rig.step(0)
    assert rig.capturer.captures == 4, "once as it is, where the weights lie now"


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_copies_and_runs_are_counted_as_without_graphs(share: float) -> None:
    plain, graphed = Rig(share), Rig(share)
    for number in range(6):
        eager(plain.handle, number)
        plain.handle.drop_copies()
        graphed.step(number)
        graphed.handle.drop_copies()
    assert graphed.capturer.replays == 5
    assert graphed.handle.passed == plain.handle.passed
    assert graphed.handle.streamed_bytes > 0


def test_without_locked_ram_nothing_is_captured() -> None:
    rig = Rig(0.5, NoLocks("tests"))
    for number in range(4):
        assert torch.equal(rig.step(number), eager(rig.handle, number))
    assert rig.capturer.captures == 0


def test_a_capture_that_fails_is_said_once_and_not_tried_again() -> None:
    tried = []

    def fail() -> None:
        tried.append(True)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    rig = Rig(0.5, capturer=FakeCapturer(fail))
    for number in range(6):
        assert torch.equal(rig.step(number), eager(rig.handle, number))
    rig.place(1.0)
    rig.step(0)
    rig.step(1)
    assert len(tried) == 1
    assert rig.warnings == [
        "a CUDA graph couldn't be captured (operation not permitted when stream is capturing); the same result, only "
        "slower"
    ]


def test_a_cancel_while_capturing_is_a_cancel() -> None:
    def cancel() -> None:
        raise Cancelled("cancelled by the test")

    rig = Rig(1.0, capturer=FakeCapturer(cancel))
    rig.step(0)
    with pytest.raises(Cancelled):
        rig.step(1)
    assert rig.warnings == []


def test_dropped_graphs_are_captured_anew() -> None:
    rig = Rig(1.0)
    for _ in range(2):
        for number in range(3):
            assert torch.equal(rig.step(number), eager(rig.handle, number))
        rig.steps.drop()
    assert rig.capturer.captures == 2
