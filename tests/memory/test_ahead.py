"""Copies beside the computation, with a double that runs each as late as it may and refuses every race."""

from __future__ import annotations

import random

import pytest
import torch

from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.memory.copies import CopiesAtOnce
from mizuoto_runtime.memory.handle import ModelHandle
from tests.memory.lazy_copies import LazyCopies
from tests.memory.test_manager import Rig
from tests.memory.tiny import FIXED, INPUTS, SIZE, UNIT, component, made, output


class Ahead(Rig):
    """A rig with two side streams. copies: of the last streamer that was made."""

    def __init__(self, size_bytes: int, **policy: object) -> None:
        super().__init__(size_bytes, **{"side_streams": 2, **policy})
        self.manager.copies_for = self.made

    def made(self, device: object, side_streams: int) -> LazyCopies:
        assert side_streams == 2
        self.copies = LazyCopies()
        return self.copies


def test_trap_04_a_unit_called_twice_in_a_row_is_copied_once_a_pass() -> None:
    rig, handle = Ahead(SIZE - UNIT, mode="none"), component(order="oneshot")
    handle.module.order = [0, 0, 1, 1, 2, 2, 3, 3]
    expected = output(handle.module)
    with rig.context().use([handle], 0):
        copied = []
        for _ in range(5):
            before = handle.streamed_bytes
            assert torch.equal(output(handle.module), expected)
            copied.append((handle.streamed_bytes - before) // UNIT)
    assert sum(copied) <= 4 * 5 + 2, "each once, and what is copied ahead of a pass that doesn't come"
    assert copied[2:] == [4] * 3
    assert rig.copies.begun > 12


def test_copies_are_begun_before_they_are_asked_for_and_waited_for_once() -> None:
    rig, handle = Ahead(SIZE - UNIT, mode="none"), component(order="oneshot")
    expected = output(handle.module)
    with rig.context().use([handle], 0):
        for _ in range(4):
            assert torch.equal(output(handle.module), expected)
        assert rig.copies.begun >= 3 * 4
        assert rig.copies.begun - 2 <= rig.copies.waited <= rig.copies.begun


@pytest.mark.parametrize("seed", range(6))
def test_a_wrong_guess_costs_time_only(seed: int) -> None:
    rig, handle = Ahead(FIXED + 6 * UNIT), component("uneven", "oneshot")
    rng = random.Random(seed)
    twin = made("uneven", 1)
    with rig.context().use([handle], 0):
        for _ in range(25):
            handle.module.order = twin.order = [rng.randrange(4) for _ in range(rng.randrange(1, 7))]
            assert torch.equal(output(handle.module), output(twin))
    assert rig.copies.begun > rig.copies.waited - 1 > 10


@pytest.mark.parametrize("number", range(2, 12))
def test_a_cancel_between_copies_leaves_the_next_ones_in_order(number: int) -> None:
    rig, handle = Ahead(SIZE - UNIT, mode="none"), component(order="oneshot")
    expected, left = output(handle.module), [0]

    def check() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Cancelled("enough")

    with rig.context(check).use([handle], 0):
        output(handle.module)
        left[0] = number
        handle.module.order = [1, 3, 0, 2, 3, 1]
        with pytest.raises(Cancelled):
            for _ in range(4):
                output(handle.module)
        for order in ([3, 1], [2, 0, 1], [0, 1, 2, 3]):
            handle.module.order = order
            output(handle.module)
        assert torch.equal(output(handle.module), expected)


def test_a_weight_changed_in_ram_after_its_copy_was_begun_is_copied_again() -> None:
    rig, handle, twin = Ahead(SIZE - UNIT, mode="none"), component(order="oneshot"), made("plain", 1)
    rig.devices.get("cpu").strict = False  # type: ignore[misc]
    with rig.context().use([handle], 0):
        output(handle.module)
        output(handle.module)
        for module in (handle.module, twin):
            with torch.no_grad():
                for layer in module.layers:
                    layer.weight.mul_(0.5)
        assert torch.equal(output(handle.module), output(twin))


def test_trap_07_nothing_but_the_charged_slots_is_taken_while_copying_ahead() -> None:
    for share in (0.0, 0.2, 0.5, 0.9):
        handle = component("uneven", "oneshot")
        least = handle.minimum_bytes(1)
        budget = least + int(share * (handle.size_bytes - least))
        rig = Ahead(budget)
        expected = output(handle.module)
        with rig.context().use([handle], 0):
            allocated: list[int] = []
            rig.device.before_allocation = allocated.append
            for _ in range(3):
                assert torch.equal(output(handle.module), expected)
            assert allocated == [], "copies go into slots, not into new blocks"
            assert rig.device.held_bytes() == handle.held_bytes <= budget
        assert rig.device.peak_bytes <= budget


def test_trap_05_two_interleaved_requests_copy_what_each_lacks_once() -> None:
    for copies in (LazyCopies, CopiesAtOnce):
        rig = Rig(2 * (FIXED + 4 * UNIT) - UNIT, side_streams=2 if copies is LazyCopies else 0)
        rig.manager.copies_for = lambda device, streams, copies=copies: copies()
        handles = [component(order="oneshot", seed=seed) for seed in (1, 2)]
        expected = [output(handle.module) for handle in handles]
        budget = rig.device.size_bytes // 2
        with rig.context().use(handles[:1], rig.device.size_bytes - budget), rig.context().use(handles[1:], 0):
            for turn in range(4):
                before = [handle.streamed_bytes for handle in handles]
                assert all(map(torch.equal, interleaved(handles), expected))
                copied = [handle.streamed_bytes - start for handle, start in zip(handles, before, strict=True)]
                if turn > 1:
                    assert copied == [handle.size_bytes - handle.loaded_bytes for handle in handles]


@torch.no_grad()
def interleaved(handles: list[ModelHandle]) -> list[torch.Tensor]:
    """The outputs of all, computed layer by layer in turn."""
    xs = [INPUTS for _ in handles]
    for index in range(4):
        for number, module in enumerate(handle.module for handle in handles):
            xs[number] = module.norm(xs[number] * module.scale + module.layers[index](xs[number]))
    return xs


def test_where_there_is_no_room_to_copy_ahead_one_copy_at_a_time_does() -> None:
    handle = component("uneven", "oneshot")
    assert handle.minimum_bytes(1) < handle.minimum_bytes(2)
    rig = Ahead(handle.minimum_bytes(1))
    expected = output(handle.module)
    with rig.context().use([handle], 0):
        assert not handle.whole
        assert torch.equal(output(handle.module), expected)
