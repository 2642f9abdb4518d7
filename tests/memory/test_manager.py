"""The budget: who is placed, who gives way, who waits, and what happens when memory runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
import torch

from mizuoto_runtime.errors import Cancelled, NotEnoughMemory
from mizuoto_runtime.memory.current import RunningPhase
from mizuoto_runtime.memory.device import Device, DeviceService, SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.host import StandaloneHost
from mizuoto_runtime.memory.manager import ModelManager
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.policy import VramPolicy
from mizuoto_runtime.types import Callbacks
from tests.memory.modules import WIDTH, Stack, linear


class Host(StandaloneHost):
    """The only device is a simulated one."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def claim(self, handles: Sequence[ModelHandle], memory_bytes: int, short_bytes: int, device: Device) -> None:
        if short_bytes > 0:
            self.asked.append(short_bytes)


def component(name: str, layers: int = 4) -> ModelHandle:
    return ModelHandle(name, Stack([linear() for _ in range(layers)]).eval().requires_grad_(False), "sequence")


SIZE = component("any").size_bytes
UNIT = component("any").costs()[0].size_bytes


class Rig:
    """A manager on a simulated device of `size_bytes`."""

    def __init__(self, size_bytes: int, **policy: object) -> None:
        self.devices = DeviceService({"cpu": size_bytes}, strict=True)
        self.host = Host()
        self.policy = VramPolicy(**{"reserve_bytes": 0, **policy})  # type: ignore[arg-type]
        self.manager = ModelManager(self.host, self.devices, lambda: self.policy)

    @property
    def device(self) -> SimulatedDevice:
        device = self.devices.get("cpu")
        assert isinstance(device, SimulatedDevice)
        return device

    def context(self, check: Callable[[], None] = lambda: None) -> PhaseContext:
        return PhaseContext("Test", self.manager, torch.Generator().manual_seed(0), Callbacks(check=check))


def run(handle: ModelHandle) -> torch.Tensor:
    output: torch.Tensor = handle.module(torch.ones(1, 3, WIDTH))
    return output


def test_what_fits_is_whole_and_what_does_not_streams_within_the_budget() -> None:
    for size, whole in ((SIZE + 100, True), (SIZE - 1, False), (SIZE // 2, False)):
        rig, handle = Rig(size), component("h")
        expected = run(handle)
        with rig.context().use([handle], 100 if whole else 0):
            assert handle.whole is whole
            assert torch.equal(run(handle), expected)
        assert rig.device.peak_bytes <= size


def test_working_memory_reserve_and_limit_come_off_the_budget() -> None:
    spare = 3 * UNIT
    for policy, memory in (({}, spare), ({"reserve_bytes": spare}, 0), ({"limit_bytes": SIZE - 1}, 0)):
        rig, handle = Rig(SIZE + spare - 1, **policy), component("h")
        with rig.context().use([handle], memory):
            assert not handle.whole


def test_an_estimate_never_refuses() -> None:
    rig, handle = Rig(SIZE), component("h")
    with rig.context().use([handle], 1 << 40):
        assert handle.resident == ()
        run(handle)


def test_below_the_minimum_only_a_failed_allocation_is_an_error() -> None:
    rig, handle = Rig(UNIT // 2), component("h")
    with pytest.raises(NotEnoughMemory, match="bytes are needed"), rig.context().use([handle], 0):
        pass
    assert not handle.busy
    assert rig.device.held_bytes() == handle.held_bytes


def test_the_least_recently_used_gives_way_unit_by_unit_and_never_a_busy_one() -> None:
    rig = Rig(2 * SIZE)
    first, second, third = (component(name) for name in "abc")
    for handle in (first, second):
        with rig.context().use([handle], 0):
            pass
    with rig.context().use([first], 0), rig.context().use([third], 0):
        assert first.whole and third.whole
        assert second.held_bytes == 0
    with rig.context().use([second], SIZE // 2):
        assert second.whole
        assert first.held_bytes < SIZE, "used before the third"
        assert third.held_bytes + first.held_bytes <= SIZE - SIZE // 2
    assert rig.host.asked == []


def test_the_application_around_is_asked_for_what_is_still_short() -> None:
    rig = Rig(SIZE - UNIT)
    with rig.context().use([component("h")], 0):
        assert rig.host.asked == [UNIT]


def test_modes() -> None:
    for mode, whole, loaded in (("none", False, False), ("low", False, True), ("high", True, True)):
        rig, handle = Rig(4 * SIZE, mode=mode), component("h", 8)
        ctx = rig.context()
        with ctx.use([handle], 0):
            assert handle.whole is whole
            assert bool(handle.resident) is loaded
        partial = ctx.memory_report().partial
        assert partial.get("h", {}).get("reason") == (None if whole else f"vram_mode {mode}")


def test_a_small_component_is_whole_before_a_large_one() -> None:
    rig = Rig(SIZE + 2 * SIZE - UNIT)
    small, large = component("small"), component("large", 8)
    with rig.context().use([large, small], 0):
        assert small.whole and not large.whole
        run(small)
        run(large)
    assert rig.device.peak_bytes <= rig.device.size_bytes


def test_in_low_mode_nobody_gives_way_for_the_half_that_is_not_wanted() -> None:
    rig = Rig(SIZE + SIZE // 2, mode="low")
    first, second = component("a"), component("b")
    with rig.context().use([first], 0):
        held = first.held_bytes
    with rig.context().use([second], 0):
        assert second.held_bytes == held and first.held_bytes == held


def test_an_idle_handle_lets_go_of_what_it_is_asked_for_and_a_busy_one_of_nothing() -> None:
    rig, handle = Rig(3 * SIZE), component("h")
    with rig.context().use([handle], 0):
        assert rig.manager.let_go(handle) == 0
        assert rig.manager.give_way(UNIT, "cpu") == 0
        assert handle.whole
    assert rig.manager.let_go(handle, UNIT) == UNIT == SIZE - handle.held_bytes
    assert rig.manager.let_go(handle) == SIZE - UNIT
    assert rig.device.held_bytes() == handle.held_bytes == 0


def test_the_application_gets_what_it_asks_for_from_the_least_recently_used() -> None:
    rig = Rig(4 * SIZE)
    first, second = component("a"), component("b")
    for handle in (first, second):
        with rig.context().use([handle], 0):
            pass
    assert rig.manager.give_way(2 * UNIT - 1, "cpu") == 2 * UNIT
    assert (first.held_bytes, second.held_bytes) == (SIZE - 2 * UNIT, SIZE)
    assert rig.manager.give_way(SIZE, "cpu") == SIZE
    assert (first.held_bytes, second.held_bytes) == (0, SIZE - 2 * UNIT)
    assert rig.manager.give_way(1 << 40, "cpu") == SIZE - 2 * UNIT
    assert rig.device.held_bytes() == 0


def test_a_phase_that_ends_leaves_another_threads_weights_alone() -> None:
    rig, handle = Rig(SIZE // 2), component("h")
    expected = run(handle)
    began, finish, results = threading.Event(), threading.Event(), list[torch.Tensor]()

    def other() -> None:
        with rig.context().use([handle], 0):
            began.set()
            finish.wait(20)
            results.append(run(handle))
        rig.manager.let_go(handle)

    thread = threading.Thread(target=other)
    thread.start()
    began.wait(20)
    with rig.context().use([handle], 0):
        pass
    assert rig.manager.let_go(handle) == 0
    finish.set()
    thread.join()
    assert len(results) == 1 and torch.equal(results[0], expected)
    assert rig.device.held_bytes() == 0


def test_what_was_loaded_in_inference_mode_leaves_outside_of_it() -> None:
    rig = Rig(4 * SIZE)
    with torch.inference_mode():
        handle = component("h")
        handle.module.register_buffer("calls", torch.zeros(3))
        handle.replace(handle.module)
        with rig.context().use([handle], 0):
            handle.module.calls += 1
            expected = run(handle)
    assert not torch.is_inference_mode_enabled()
    assert rig.manager.let_go(handle) > 0
    with rig.context().use([handle], 0):
        assert torch.equal(run(handle), expected)
        assert torch.equal(handle.module.calls, torch.ones(3))


def test_a_plain_cpu_moves_nothing_and_counts_nothing() -> None:
    host, handle = Host(), component("h")
    manager = ModelManager(host, DeviceService(), lambda: VramPolicy())
    weight = handle.module.layers[0][0].weight
    ctx = PhaseContext("Test", manager, torch.Generator())
    with ctx.use([handle], 1 << 60):
        assert handle.module.layers[0][0].weight is weight
    assert host.asked == []
    assert ctx.memory_report().components["h"].loaded_bytes == SIZE


def failing(error: type[BaseException], times: int, draws: list[torch.Tensor], ctx: PhaseContext) -> Callable[[], str]:
    def attempt() -> str:
        draws.append(torch.randn(3, generator=ctx.rng))
        ctx.warn(f"attempt {len(draws)}")
        ctx.applied["attempt"] = len(draws)
        if len(draws) <= times:
            raise error("CUDA error: out of memory")
        return "done"

    return attempt


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, NotEnoughMemory])
def test_a_retry_replays_the_same_numbers_and_forgets_the_failed_attempts_notes(error: type[BaseException]) -> None:
    rig, handle, idle = Rig(3 * SIZE), component("h"), component("idle")
    with rig.context().use([idle], 0):
        pass
    ctx, draws = rig.context(), list[torch.Tensor]()
    assert ctx.run("step", [handle], failing(error, 1, draws, ctx), 0) == "done"
    assert torch.equal(draws[0], draws[1])
    assert (ctx.applied["oom_retries"], ctx.applied["attempt"]) == (1, 2)
    assert [text for text in ctx.warnings if text.startswith("attempt")] == ["attempt 2"]
    assert idle.held_bytes == 0
    assert handle.held_bytes <= SIZE // 2


def test_after_two_retries_there_is_one_clear_error_or_the_fallback() -> None:
    for fallback_on in (False, True):
        rig, handle = Rig(3 * SIZE, oom_fallback=fallback_on), component("h", 8)
        ctx, draws = rig.context(), list[torch.Tensor]()
        attempt = failing(MemoryError, 9, draws, ctx)
        if fallback_on:
            assert ctx.run("step", [handle], attempt, 0, fallback=("tiles", lambda: "tiled")) == "tiled"
            assert ctx.applied["fallbacks"] == ["tiles"]
        else:
            with pytest.raises(NotEnoughMemory, match="Test, step"):
                ctx.run("step", [handle], attempt, 0, fallback=("tiles", lambda: "tiled"))
        assert len(draws) == 3


def test_other_errors_and_cancels_are_not_retried() -> None:
    for error in (RuntimeError("shape mismatch"), Cancelled("enough"), KeyboardInterrupt()):
        rig, handle, calls = Rig(3 * SIZE), component("h"), list[int]()

        def attempt(error: BaseException = error, calls: list[int] = calls) -> None:
            calls.append(1)
            raise error

        with pytest.raises(type(error)):
            rig.context().run("step", [handle], attempt, 0)
        assert calls == [1]
        assert not handle.busy


def test_a_cancel_during_a_copy_leaves_the_next_run_exact() -> None:
    rig, handle, checks = Rig(SIZE // 2), component("h"), list[int]()
    expected = run(handle)

    def check() -> None:
        checks.append(1)
        if len(checks) == 6:
            raise Cancelled("enough")

    with pytest.raises(Cancelled), rig.context(check).use([handle], 0):
        run(handle)
    with rig.context().use([handle], 0):
        assert torch.equal(run(handle), expected)


def test_a_request_waits_for_the_memory_of_another_and_can_be_cancelled_meanwhile() -> None:
    rig, first, second = Rig(SIZE + UNIT // 2), component("a"), component("b")
    began, finish, order = threading.Event(), threading.Event(), list[str]()

    def other() -> None:
        with rig.context().use([first], 0):
            began.set()
            finish.wait(20)
            order.append("first")

    thread = threading.Thread(target=other)
    thread.start()
    began.wait(20)
    checks = iter([None] * 3)

    def impatient() -> None:
        if next(checks, 1):
            raise Cancelled("enough")

    with pytest.raises(Cancelled), rig.context(impatient).use([second], 0):
        pass
    threading.Timer(0.2, finish.set).start()
    with rig.context().use([second], 0):
        order.append("second")
        run(second)
    thread.join()
    assert order == ["first", "second"]


def test_a_phase_inside_a_phase_does_not_wait_for_its_own() -> None:
    rig, outer, inner = Rig(SIZE + UNIT // 2, wait_seconds=5.0), component("a"), component("b", 1)
    with rig.context().use([outer], 0), pytest.raises(NotEnoughMemory), rig.context().use([inner], 0):
        pass


def test_streamed_bytes_are_those_of_the_phase_that_ran() -> None:
    rig, handle = Rig(SIZE // 2), component("h")
    for _ in range(2):
        ctx = rig.context()
        with ctx.use([handle], 0):
            run(handle)
        report = ctx.memory_report()
        assert report.streamed_bytes == handle.size_bytes - handle.loaded_bytes
        assert report.partial["h"]["reason"] == "budget"


def test_a_limit_that_leaves_no_more_is_said() -> None:
    for size_bytes, reason in ((4 * SIZE, "vram_limit"), (SIZE // 2, "budget")):
        rig, handle = Rig(size_bytes, limit_bytes=SIZE // 2 + 1), component("h")
        ctx = rig.context()
        with ctx.use([handle], 0):
            run(handle)
        assert ctx.memory_report().partial["h"]["reason"] == reason


def test_threads_that_share_a_partial_handle_agree() -> None:
    rig, handle = Rig(SIZE // 2), component("h")
    expected, results = run(handle), list[torch.Tensor]()

    def work() -> None:
        with rig.context().use([handle], 0):
            results.extend(run(handle) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    assert all(torch.equal(result, expected) for result in results)


def test_nothing_grows_over_many_rounds() -> None:
    rig = Rig(SIZE // 2)
    for _ in range(40):
        handle = component("h")
        with rig.context().use([handle], 0):
            run(handle)
        del handle
    assert rig.device.held_bytes() == 0, "what is dropped gives its memory back"


def test_the_running_phase_is_known_only_while_it_runs() -> None:
    from mizuoto_runtime.memory import current

    phase = RunningPhase(lambda: None)
    current.begin(phase)
    assert current.phase() is phase
    current.end(phase)
    assert current.phase() is None
