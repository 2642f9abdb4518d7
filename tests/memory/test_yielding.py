"""Who gives way, when and to whom, beyond the plain order; who never moves; who waits."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.memory import jobs, turns
from mizuoto_runtime.memory.device import DeviceService
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.jobs import JobSlots
from mizuoto_runtime.memory.ram import GB, Ram
from mizuoto_runtime.types import ModelRef
from tests.memory.modules import WIDTH, Stack, linear
from tests.memory.test_manager import SIZE, UNIT, Rig, component, run

KEPT = ModelRef("piper", "kept")


def test_a_pinned_models_parts_give_way_after_all_others() -> None:
    rig = Rig(2 * SIZE + UNIT, pinned_models=frozenset({KEPT}))
    pinned, other, third = component("a"), component("b"), component("c")
    pinned.model = KEPT
    for handle in (pinned, other):
        with rig.context().use([handle], 0):
            pass
    with rig.context().use([third], 0):
        assert pinned.whole and third.whole, "although it was used before the other"
        assert other.held_bytes < SIZE


def test_where_ram_is_short_whole_handles_keep_no_copy_and_idle_ones_drop_theirs() -> None:
    rig, first, second = Rig(4 * SIZE), component("a"), component("b")
    expected = run(first), run(second)
    free = [64 * GB]
    rig.manager.memory.read = lambda: Ram(64 * GB, free[0], "test")
    with rig.context().use([first], 0):
        assert first.host_copy_bytes > 0
        assert rig.manager.drop_host_copies(1) == 0, "it is in use"
    free[0] = GB
    with rig.context().use([second], 0):
        assert second.host_copy_bytes == 0
        assert rig.manager.drop_host_copies(1) > 0
    assert first.host_copy_bytes == 0
    for handle, output in zip((first, second), expected, strict=True):
        with rig.context().use([handle], 0):
            assert torch.equal(run(handle), output)
        handle.unload()
        assert rig.device.held_bytes() == sum(other.held_bytes for other in (first, second))
        with rig.context().use([handle], SIZE):
            assert torch.equal(run(handle), output), "the weights came back from the device"


def test_what_is_pinned_to_the_cpu_is_never_moved_nor_counted() -> None:
    devices = DeviceService({"cpu": 1 << 30}, strict=True)
    module = Stack([linear() for _ in range(4)]).eval().requires_grad_(False)
    aside = module.layers[3]
    devices.pin_to_cpu(aside)
    handle = ModelHandle("h", module, "sequence", stays=devices.stays_on_cpu)
    weight = aside[0].weight
    assert handle.size_bytes == SIZE - UNIT
    rig = Rig(SIZE)
    with rig.context().use([handle], 0):
        assert aside[0].weight is weight
        module(torch.ones(1, 3, WIDTH))
        assert rig.device.held_bytes() == SIZE - UNIT


def test_one_request_at_a_time_uses_a_device_unless_more_are_allowed() -> None:
    slots, inside, most = JobSlots(), [0], [0]
    lock, gate = threading.Lock(), threading.Barrier(2)

    def work(allowed: int) -> None:
        with slots.job("cuda:0", allowed, lambda: None):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            if allowed == 2:
                gate.wait(20)
            with lock:
                inside[0] -= 1

    for allowed in (1, 2):
        most[0] = 0
        threads = [threading.Thread(target=work, args=(allowed,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert most[0] == allowed


def test_waiting_for_a_device_ends_with_a_cancel() -> None:
    slots = JobSlots()

    def cancelled() -> None:
        raise Cancelled("enough")

    with slots.job("cuda:0", 1, lambda: None), pytest.raises(Cancelled), slots.job("cuda:0", 1, cancelled):
        pass
    with slots.job("cuda:0", 1, cancelled):
        pass


@pytest.mark.parametrize("host_copies", ["off", "auto", "on"])
def test_a_partial_handle_always_has_its_copy_in_ram_and_a_whole_one_as_it_is_set(host_copies: str) -> None:
    rig, handle = Rig(SIZE - UNIT, host_copies=host_copies), component("h")
    rig.manager.memory.read = lambda: Ram(64 * GB, 0, "test")
    for whole in (False, True):
        with rig.context().use([handle], 0):
            assert handle.whole is whole and handle.resident
            kept = not whole or host_copies == "on"
            for group in handle.division.groups:
                if group.entries and group is not handle.division.buffers:
                    assert all(entry.host.is_meta is not kept for entry in group.entries), group.name
        handle.unload()
        rig.device.size_bytes = SIZE


def test_whoever_waits_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting requests also look for themselves now and then; here never, so that only being told helps."""
    for module in (turns, jobs):
        monkeypatch.setattr(module, "POLL_SECONDS", 3600.0)
    rig, first, second = Rig(SIZE + UNIT // 2), component("a"), component("b")
    slots, holds, done = JobSlots(), threading.Event(), list[str]()

    def holder() -> None:
        with slots.job("sim", 1, lambda: None):
            with rig.context().use([first], 0):
                holds.set()
                while not rig.manager._turns._held:
                    time.sleep(0.001)
                done.append("first")
            while len(done) < 2 or not slots._changed._waiters:  # type: ignore[attr-defined]
                time.sleep(0.001)

    def waiter() -> None:
        holds.wait(20)
        with rig.context().use([second], 0):
            done.append("second")
        with slots.job("sim", 1, lambda: None):
            done.append("third")

    threads = [threading.Thread(target=each, daemon=True) for each in (holder, waiter)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert done == ["first", "second", "third"]


def test_partial_handles_give_way_before_whole_ones_that_were_used_earlier() -> None:
    rig = Rig(3 * SIZE - 2 * UNIT)
    whole, partial, third = component("a"), component("b"), component("c")
    for handle in (whole, partial):
        with rig.context().use([handle], 0):
            pass
    assert partial.partially_unload(UNIT) == UNIT
    with rig.context().use([third], 0):
        assert third.whole and whole.whole
        assert partial.held_bytes == SIZE - 2 * UNIT


def test_a_limit_is_for_all_that_the_process_holds() -> None:
    rig, first, second = Rig(8 * SIZE, limit_bytes=2 * SIZE - UNIT), component("a"), component("b")
    with rig.context().use([first], 0), rig.context().use([second], 0):
        assert first.whole and not second.whole
        assert rig.device.held_bytes() <= 2 * SIZE - UNIT


def test_the_allocators_cache_is_emptied_after_somebody_gave_way_or_memory_ran_out_only() -> None:
    rig, first, second = Rig(SIZE + UNIT // 2), component("a"), component("b")
    emptied = list[int]()
    rig.device.empty_cache = lambda: emptied.append(1)  # type: ignore[method-assign]
    for _ in range(3):
        with rig.context().use([first], 0):
            pass
    assert emptied == []
    with rig.context().use([second], 0):
        assert emptied == [1]
    rig.manager.after_oom([second])
    assert emptied == [1, 1]


def test_what_the_allocator_kept_is_reason_enough_to_run_again() -> None:
    rig, handle, failures = Rig(SIZE, mode="none"), component("h"), [MemoryError("fragments")]
    expected = run(handle)

    def attempt() -> torch.Tensor:
        if failures:
            raise failures.pop()
        return run(handle)

    rig.device.cached_bytes = lambda: 1  # type: ignore[method-assign]
    assert torch.equal(rig.context().run("step", [handle], attempt, 0), expected)


def test_a_pinned_models_copies_stay_where_ram_is_short() -> None:
    rig = Rig(4 * SIZE, pinned_models=frozenset({KEPT}), host_copies="on")
    pinned, other = component("a"), component("b")
    pinned.model = KEPT
    for handle in (pinned, other):
        with rig.context().use([handle], 0):
            pass
    assert rig.manager.drop_host_copies(1 << 40) == other.size_bytes
    assert pinned.host_copy_bytes == SIZE and other.host_copy_bytes == 0
