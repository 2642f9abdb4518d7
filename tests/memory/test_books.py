"""What the random machine found, each as plain steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from torch import nn

from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.memory import current
from mizuoto_runtime.memory.absent import AbsentWeightError
from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from tests.memory.test_manager import Rig
from tests.memory.tiny import FIXED, SIZE, UNIT, Attention, Tiny, component, made, output


def test_phases_that_end_in_any_order_leave_none_running() -> None:
    rig = Rig(2 * SIZE)
    first, second = ExitStack(), ExitStack()
    first.enter_context(rig.context().use([component(seed=1)], 0))
    second.enter_context(rig.context().use([component(seed=2)], 0))
    first.close()
    assert current.phase() is not None
    second.close()
    assert current.phase() is None


def test_a_phase_that_has_ended_keeps_no_handle_alive() -> None:
    rig, outer = Rig(2 * SIZE), [component(seed=1)]
    first, second = ExitStack(), ExitStack()
    first.enter_context(rig.context().use(outer, 0))
    second.enter_context(rig.context().use([component(seed=2)], 0))
    first.close()
    del outer[:]
    assert rig.device.held_bytes() == SIZE
    second.close()


def test_the_only_unit_is_divided_at_its_layers_and_attention_stays_one_layer() -> None:
    module = Tiny([nn.Sequential(Attention(), Attention())]).eval().requires_grad_(False)
    handle = ModelHandle("h", module, "sequence")
    expected = output(module)
    rig = Rig(handle.minimum_bytes(1))
    with rig.context().use([handle], 0):
        assert not handle.whole
        assert torch.equal(output(module), expected)


def test_a_mark_changes_what_is_planned_by_the_order_of_the_last_run() -> None:
    rig, handle = Rig(SIZE - UNIT), component("out of order")
    with rig.context().use([handle], 0):
        output(handle.module)
    handle.mark(handle.module.layers[0], "fixed")
    with rig.context().use([handle], 0):
        assert torch.equal(output(handle.module), output(made("out of order", 1)))


def test_idle_handles_give_way_in_mode_none_too() -> None:
    for mode in ("none", "low"):
        rig, idle, handle = Rig(SIZE + FIXED), component(seed=1), component(seed=2)
        with rig.context().use([idle], 0):
            pass
        rig.policy = replace(rig.policy, mode=mode)
        with rig.context().use([handle], 0):
            output(handle.module)
        assert idle.held_bytes < SIZE


def test_a_failed_phase_takes_nothing_from_the_phase_around_it() -> None:
    rig, outer, inner = Rig(SIZE), component(seed=1), component("uneven", seed=2)
    expected = output(outer.module)
    ctx = rig.context()
    with ctx.use([outer], 0):
        with pytest.raises(NotEnoughMemory):
            rig.context().run("inner", [outer, inner], lambda: None, 0)
        assert outer.whole
        assert torch.equal(output(outer.module), expected)


def test_handles_follow_the_host_to_another_device() -> None:
    rig, handle = Rig(2 * SIZE), component()
    other = rig.devices._devices["other"] = SimulatedDevice("other", 2 * SIZE, strict=True)
    expected = output(handle.module)
    for name, device in (("cpu", rig.device), ("other", other), ("cpu", rig.device)):
        rig.host._device = name
        for _ in range(2):
            with rig.context().use([handle], 0):
                assert (handle.device_name, device.held_bytes()) == (name, SIZE)
                assert torch.equal(output(handle.module), expected)
    assert other.held_bytes() == 0


def test_slots_that_others_stream_through_too_are_not_counted_as_ones_own() -> None:
    rig = Rig(2 * FIXED + 3 * UNIT)
    pair = [component(seed=1), component(seed=2)]
    with rig.context().use(pair, 0):
        assert sum(handle.held_bytes for handle in pair) == rig.device.held_bytes() == rig.device.size_bytes
    for handle in (*pair, *pair):
        with rig.context().use([handle], 0):
            assert torch.equal(output(handle.module), output(made("plain", pair.index(handle) + 1)))
        assert sum(handle.held_bytes for handle in pair) == rig.device.held_bytes()


def test_sizes_are_those_of_the_weights_and_marks_in_force() -> None:
    handle = component()
    assert handle.size_bytes == SIZE
    handle.mark(handle.module.layers[0], "fixed")
    assert handle.fixed_bytes == FIXED + UNIT
    handle.replace(made("uneven", 1))
    assert handle.size_bytes == component("uneven").size_bytes
    assert handle.minimum_bytes(1) == component("uneven").minimum_bytes(1)


def test_a_module_is_complete_again_when_its_handle_is_dropped() -> None:
    rig, handle = Rig(SIZE - UNIT), component()
    module = handle.module
    with rig.context().use([handle], 0):
        pass
    rig.manager.release_after_oom()
    with pytest.raises(AbsentWeightError):
        output(module)
    del handle
    assert torch.equal(output(module), output(made("plain", 1)))


def test_an_embedding_may_be_marked_again_while_its_rows_are_gathered() -> None:
    handle = component("embedding")
    rig = Rig(handle.size_bytes - 1)
    for _ in range(2):
        handle.mark(handle.module.embedding, "gather")
        with rig.context().use([handle], 0):
            assert torch.equal(output(handle.module), output(made("embedding", 1)))


def on_one_module(kind: str = "plain") -> tuple[ModelHandle, ModelHandle]:
    module = made(kind, 1)
    return ModelHandle("first", module, "sequence"), ModelHandle("second", module, "sequence")


@pytest.mark.parametrize("size_bytes", [2 * SIZE, SIZE - UNIT])
def test_handles_that_share_a_module_take_turns(size_bytes: int) -> None:
    rig, pair = Rig(size_bytes), on_one_module()
    for handle in pair * 3:
        with rig.context().use([handle], 0):
            assert torch.equal(output(handle.module), output(made("plain", 1)))
            assert rig.device.held_bytes() == handle.held_bytes
        assert pair[1].size_bytes == pair[0].size_bytes, "read while the other is placed"


def test_handles_that_share_a_part_take_turns() -> None:
    shared = made("plain", 1)
    wide = nn.ModuleDict({"shared": shared, "own": made("uneven", 2)}).requires_grad_(False)
    rig, pair = Rig(1 << 30), (ModelHandle("part", shared, "sequence"), ModelHandle("wide", wide, "sequence"))
    for handle in pair * 2:
        with rig.context().use([handle], 0):
            assert torch.equal(output(shared), output(made("plain", 1)))
            assert rig.device.held_bytes() == handle.held_bytes == handle.size_bytes


@pytest.mark.parametrize("nested", [True, False])
def test_handles_that_share_a_module_cant_be_used_at_once(nested: bool) -> None:
    rig, (first, second) = Rig(2 * SIZE, wait_seconds=0.0), on_one_module()
    with pytest.raises(RuntimeError, match="share weights"), ExitStack() as phases:
        if nested:
            phases.enter_context(rig.context().use([first], 0))
        phases.enter_context(rig.context().use([second] if nested else [first, second], 0))
    assert not first.busy and not second.busy
    with rig.context().use([second], 0):
        assert torch.equal(output(second.module), output(made("plain", 1)))


def test_what_one_of_them_changed_the_other_sees_and_keeps() -> None:
    rig, (first, second) = Rig(2 * SIZE), on_one_module()
    twin = made("plain", 1)
    for handle in (first, second, first):
        with rig.context().use([handle], 0):
            for module in (handle.module, twin):
                with torch.no_grad():
                    module.layers[0].weight.mul_(0.5)
            assert torch.equal(output(handle.module), output(twin))
        handle.drop_host_copies()
    module = first.module
    del first, second, handle
    assert torch.equal(output(module), output(twin))
    assert rig.device.held_bytes() == 0


class Streaming:
    """A generator that holds a phase open, as streamed audio does."""

    def __init__(self, rig: Rig, handle: ModelHandle) -> None:
        self.ctx = rig.context()
        self.handle = handle

    def chunks(self) -> Iterator[torch.Tensor]:
        with self.ctx.use([self.handle], 0):
            while True:
                yield output(self.handle.module)


def test_trap_24_a_generator_that_nobody_asks_again_ends_with_its_phase() -> None:
    rig, handle, other = Rig(SIZE + UNIT // 2), component(seed=1), component(seed=2)
    streaming = Streaming(rig, handle)
    chunks = streaming.chunks()
    assert torch.equal(next(chunks), output(made("plain", 1)))
    assert handle.busy
    streaming.ctx.close()
    assert not handle.busy
    assert current.phase() is None
    with rig.context().use([other], 0):
        assert other.whole and handle.held_bytes < UNIT
    chunks.close()
    assert not handle.busy


def test_trap_24_generators_of_two_requests_may_be_asked_in_turn() -> None:
    rig = Rig(2 * SIZE - UNIT)
    both = [Streaming(rig, component(seed=seed)) for seed in (1, 2)]
    asked = [streaming.chunks() for streaming in both]
    for _ in range(3):
        for seed, chunks in enumerate(asked, 1):
            assert torch.equal(next(chunks), output(made("plain", seed)))
    for streaming in both:
        assert list(streaming.ctx.memory_report().components) == [streaming.handle.name], "it is still open"
        streaming.ctx.close()
    total = sum(streaming.ctx.memory_report().streamed_bytes for streaming in both)
    assert total == sum(streaming.handle.streamed_bytes for streaming in both)
