"""Several requests on one device: who waits, who doesn't, and reports at any time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch

from mizuoto_runtime.errors import Cancelled, NotEnoughMemory
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.jobs import JobSlots
from tests.memory.test_manager import Rig
from tests.memory.tiny import FIXED, SIZE, UNIT, component, made, output

PATIENCE_SECONDS = 30.0


def in_threads(*functions: Callable[[], None]) -> None:
    """Run all at once; the first error of any of them is raised here, also if one never ends.

    On as many cores each as this thread, which is a thread's own affair: on some CPUs sums differ by it.
    """
    errors: list[BaseException] = []
    cores = torch.get_num_threads()

    def guarded(function: Callable[[], None]) -> None:
        torch.set_num_threads(cores)
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a request waits for ever"
    if errors:
        raise errors[0]


def test_requests_of_four_threads_wait_for_each_other_and_none_is_lost() -> None:
    rig = Rig(SIZE + FIXED + UNIT // 2)
    handles = [component(kind, seed=seed) for seed, kind in enumerate(("plain", "uneven", "strided", "tied"))]
    expected = [output(handle.module) for handle in handles]
    done: list[int] = []

    def work(number: int) -> None:
        for turn in range(6):
            chosen = (number + turn * (1 + number % 2)) % 4
            with rig.context().use([handles[chosen]], 0):
                assert torch.equal(output(handles[chosen].module), expected[chosen])
            done.append(chosen)

    in_threads(*(lambda number=number: work(number) for number in range(4)))
    assert len(done) == 24
    assert not any(handle.busy for handle in handles)
    assert rig.device.held_bytes() == sum(handle.held_bytes for handle in handles)
    assert rig.device.peak_bytes <= rig.device.size_bytes


def test_a_request_that_waits_holds_nothing_that_another_waits_for() -> None:
    rig = Rig(2 * (FIXED + UNIT), mode="none")
    pairs = [[component(seed=seed), component(seed=seed + 1)] for seed in (1, 3)]
    expected = [[output(handle.module) for handle in pair] for pair in pairs]
    for pair in pairs:
        with rig.context().use(pair[:1], 0):
            pass
    assert all(pair[0].held_bytes for pair in pairs)
    both = threading.Barrier(2)

    def work(number: int) -> None:
        both.wait()
        for _ in range(5):
            with rig.context().use(pairs[number], 0):
                found = [output(handle.module) for handle in pairs[number]]
            assert all(torch.equal(*each) for each in zip(found, expected[number], strict=True))

    in_threads(lambda: work(0), lambda: work(1))


def test_two_requests_inside_their_own_phases_do_not_wait_for_each_other_for_ever() -> None:
    rig = Rig(2 * SIZE + FIXED)
    outer, inner = [component(seed=1), component(seed=2)], [component(seed=3), component(seed=4)]
    both, began = threading.Barrier(2), time.monotonic()
    short: list[NotEnoughMemory] = []

    def work(number: int) -> None:
        try:
            with rig.context().use([outer[number]], 0):
                both.wait()
                with rig.context().use([inner[number]], 0):
                    output(inner[number].module)
        except NotEnoughMemory as error:
            short.append(error)

    in_threads(lambda: work(0), lambda: work(1))
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    assert len(short) == 1, "the first gives up what the second waits for"


def test_a_cancel_ends_a_wait_and_the_memory_is_had_at_once_when_it_is_free() -> None:
    rig, first, second = Rig(SIZE + UNIT // 2), component(seed=1), component(seed=2)
    holds, enough = threading.Event(), threading.Event()
    waits = threading.Event()

    def holder() -> None:
        with rig.context().use([first], 0):
            holds.set()
            assert enough.wait(PATIENCE_SECONDS)

    def impatient() -> None:
        assert holds.wait(PATIENCE_SECONDS)

        def check() -> None:
            if waits.is_set():
                raise Cancelled("enough")
            waits.set()

        with pytest.raises(Cancelled), rig.context(check).use([second], 0):
            pass
        assert not second.busy
        enough.set()
        with rig.context().use([second], 0):
            assert second.whole

    in_threads(holder, impatient)


def test_another_devices_requests_are_not_waited_for() -> None:
    rig, first, second = Rig(SIZE + UNIT // 2), component(seed=1), component(seed=2)
    rig.devices._devices["other"] = type(rig.device)("other", SIZE, strict=True)
    with rig.context().use([first], 0):
        rig.host._device = "other"

        def beside() -> None:
            with rig.context().use([second], 0):
                assert second.whole

        began = time.monotonic()
        in_threads(beside)
        rig.devices._devices["other"].size_bytes = UNIT // 2  # type: ignore[attr-defined]
        second.unload()
        with pytest.raises(NotEnoughMemory):
            in_threads(beside)
        assert time.monotonic() - began < PATIENCE_SECONDS / 2


def test_gpu_jobs_lets_so_many_requests_run_and_a_cancel_end_a_wait() -> None:
    slots, running, most = JobSlots(), list[int](), list[int]()

    def work() -> None:
        for _ in range(20):
            with slots.job("sim", 2, lambda: None):
                running.append(1)
                most.append(len(running))
                time.sleep(0.001)
                running.pop()

    in_threads(work, work, work, work)
    assert len(most) == 80
    assert max(most) == 2
    with slots.job("sim", 1, lambda: None):
        with slots.job("another", 1, lambda: None):
            pass

        def cancelled() -> None:
            raise Cancelled("enough")

        with pytest.raises(Cancelled), slots.job("sim", 1, cancelled):
            pass
    with slots.job("sim", 1, lambda: None):
        pass


def test_trap_08_a_report_does_not_wait_for_a_placement() -> None:
    rig, handle, other = Rig(4 * SIZE), component(seed=1), component(seed=2)
    with rig.context().use([other], 0):
        pass
    placing, go_on = threading.Event(), threading.Event()

    def slow(size_bytes: int) -> None:
        placing.set()
        assert go_on.wait(PATIENCE_SECONDS)

    rig.device.before_allocation = slow

    def place() -> None:
        with rig.context().use([handle], 0):
            pass

    def report() -> None:
        assert placing.wait(PATIENCE_SECONDS)
        began = time.monotonic()
        assert rig.manager.facts()["devices"][0]["held_bytes"] == other.held_bytes
        assert [each.loaded_bytes for each in (handle, other)] == [0, SIZE]
        assert (handle.busy, handle.resident, other.resident) == (True, (), other.resident)
        assert rig.context().memory_report().components == {}
        assert time.monotonic() - began < 1.0
        go_on.set()

    in_threads(place, report)


def test_handles_may_come_and_go_while_others_are_looked_at() -> None:
    rig = Rig(4 * SIZE)
    stop = threading.Event()

    def adopt() -> None:
        while not stop.is_set():
            rig.manager.adopt([component("plain", seed=1) for _ in range(3)])

    def look() -> None:
        try:
            for _ in range(3_000):
                sum(handle.held_bytes for handle in rig.manager.room.handles)
        finally:
            stop.set()

    in_threads(adopt, look)


def test_a_request_waits_for_weights_that_it_shares_with_another_even_where_there_is_room() -> None:
    rig, module = Rig(4 * SIZE), made("plain", 1)
    first, second = ModelHandle("first", module, "sequence"), ModelHandle("second", module, "sequence")
    holds, order = threading.Event(), list[str]()

    def holder() -> None:
        with rig.context().use([first], 0):
            holds.set()
            while not rig.manager._turns._held:
                time.sleep(0.001)
            order.append("first")

    def other() -> None:
        assert holds.wait(PATIENCE_SECONDS)
        with rig.context().use([second], 0):
            order.append("second")
            assert torch.equal(output(module), output(made("plain", 1)))

    in_threads(holder, other)
    assert order == ["first", "second"]


def test_a_request_waits_no_longer_than_it_may_and_then_tries_anyway() -> None:
    rig, first, second = Rig(SIZE + UNIT // 2, wait_seconds=0.2), component(seed=1), component(seed=2)
    began = time.monotonic()

    def other() -> None:
        with pytest.raises(NotEnoughMemory), rig.context().use([second], 0):
            pass

    with rig.context().use([first], 0):
        in_threads(other)
        assert 0.2 <= time.monotonic() - began < PATIENCE_SECONDS / 2
        rig.device.size_bytes += SIZE
        in_threads(lambda: rig.context().run("step", [second], lambda: None, 0))
