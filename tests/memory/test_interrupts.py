"""A phase that is broken off anywhere while it is entered or left keeps nothing in use once its request has ended."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.memory import current
from mizuoto_runtime.memory import manager as manager_module
from mizuoto_runtime.memory.calibration import Calibration
from mizuoto_runtime.memory.device import Device
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.working import WorkingMemory
from tests.memory.meters import ToldMeter
from tests.memory.test_manager import Rig
from tests.memory.test_threads import in_threads
from tests.memory.tiny import FIXED, SIZE, UNIT, component, made, output

FOLDER = Path(manager_module.__file__).parent
BOOKKEEPING = {str(FOLDER / f"{name}.py") for name in ("phase", "manager", "turns", "current", "working")}


class Interrupt:
    """Raises at the n-th line of the bookkeeping that is run while it is active."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in BOOKKEEPING and frame.f_code.co_name not in ("enter", "leave"):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self._trace


def unused(rig: Rig, handles: Sequence[ModelHandle]) -> None:
    """Nothing is in use, the books are true, and the next phase is exact."""
    assert not any(handle.busy for handle in handles)
    assert current.phase() is None
    turns = rig.manager._turns
    assert not (turns._placing or turns._held or turns._begun)
    assert rig.device.held_bytes() == sum(handle.held_bytes for handle in handles)
    for seed, handle in enumerate(handles, 1):
        with rig.context().use([handle], 0):
            assert torch.equal(output(handle.module), output(made("plain", seed)))


@pytest.mark.parametrize(("size_bytes", "placed"), [(2 * SIZE, True), (2 * FIXED + UNIT, False)])
@pytest.mark.parametrize("leaving", [True, False])
def test_an_interrupt_at_any_line_of_entering_or_leaving_keeps_nothing_in_use(
    size_bytes: int, placed: bool, leaving: bool
) -> None:
    for number in range(1, 1000):
        rig, handles = Rig(size_bytes), [component(seed=1), component(seed=2)]
        rig.manager.working = WorkingMemory(Calibration(None), lambda device: "sim", lambda: "", ToldMeter([1] * 9))
        if placed:
            with rig.context().use(handles, 0):
                pass
        ctx, interrupt = rig.context(), Interrupt(number)
        block = ctx.use(handles, 0)
        try:
            if leaving:
                block.__enter__()
            with interrupt:
                block.__exit__(None, None, None) if leaving else block.__enter__()
            if not leaving:
                block.__exit__(None, None, None)
        except KeyboardInterrupt:
            ctx.close()
        unused(rig, handles)
        if interrupt.left > 0:
            assert number > 15
            return
    raise AssertionError("entering never ends")


def test_a_host_that_fails_when_a_phase_ends_keeps_no_other_request_waiting() -> None:
    rig, first, second = Rig(SIZE + UNIT // 2), component(seed=1), component(seed=2)
    ctx = rig.context()
    with pytest.raises(RuntimeError, match="simulated"), ctx.use([first], 0):
        rig.host.ended = failing("simulated")  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="simulated"):
        ctx.close()
    del rig.host.ended
    began = threading.Event()

    def beside() -> None:
        with rig.context().use([second], 0):
            began.set()

    in_threads(beside)
    assert began.is_set() and not first.busy
    unused(rig, [first, second])


def failing(message: str) -> Callable[..., Any]:
    def fail(*arguments: object, **named: object) -> None:
        raise RuntimeError(message)

    return fail


def test_an_error_while_the_application_makes_room_is_the_requests_and_nothing_stays_in_use() -> None:
    for error in (RuntimeError("simulated"), NotEnoughMemory("simulated"), KeyboardInterrupt("simulated")):
        rig, handles = Rig(SIZE - UNIT), [component(seed=1)]

        def claim(*arguments: object, error: BaseException = error) -> bool:
            raise error

        rig.host.claim = claim  # type: ignore[method-assign,assignment]
        with pytest.raises(type(error), match="simulated"), rig.context().use(handles, 0):
            pass
        del rig.host.claim
        unused(rig, handles)


@pytest.mark.parametrize("broken", ["start", "stop"])
def test_a_measurement_that_fails_keeps_nothing_in_use(broken: str) -> None:
    rig, handle = Rig(SIZE), component(seed=1)
    meter = ToldMeter([1] * 9)
    rig.manager.working = WorkingMemory(Calibration(None), lambda device: "sim", lambda: "", meter)
    setattr(meter, broken, failing("device-side assert"))
    ctx = rig.context()
    with pytest.raises(RuntimeError, match="device-side assert"), ctx.use([handle], 0):
        pass
    delattr(meter, broken)
    unused(rig, [handle])


def test_a_report_that_fails_keeps_nothing_in_use() -> None:
    rig, first, second = Rig(2 * SIZE), component(seed=1), component(seed=2)
    ctx = rig.context()
    ctx.use([first], 0).__enter__()
    ctx.use([second], 0).__enter__()
    ctx._note = failing("no report")  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no report"):
        ctx.close()
    unused(rig, [first, second])


def test_a_phase_that_ends_on_another_thread_runs_on_its_own_no_more() -> None:
    rig, handle = Rig(SIZE), component(seed=1)
    ctx = rig.context()
    ctx.use([handle], 0).__enter__()
    assert current.phase() is not None
    in_threads(ctx.close)
    unused(rig, [handle])


def test_a_generator_that_is_collected_while_another_request_waits_for_its_turn_ends_its_phase() -> None:
    """Collecting may happen inside any call, also while the books of the waiting are open."""
    rig, first, second = Rig(SIZE + UNIT // 2), component(seed=1), component(seed=2)
    contexts: list[PhaseContext] = []

    def chunks() -> Iterator[torch.Tensor]:
        contexts.append(rig.context())
        with contexts[0].use([first], 0):
            while True:
                yield output(first.module)

    cycle: list[Any] = [chunks()]
    cycle.append(cycle)
    next(cycle[0])
    before = rig.host.free_bytes

    def collecting(device: Device) -> int:
        gc.collect()
        return before(device)

    rig.host.free_bytes = collecting  # type: ignore[method-assign]
    del cycle

    def beside() -> None:
        with rig.context().use([second], 0):
            pass

    in_threads(beside)
    del rig.host.free_bytes
    unused(rig, [first, second])


def test_a_handle_that_is_named_twice_is_used_once() -> None:
    rig, handle = Rig(SIZE), component(seed=1)
    with rig.context().use([handle, handle], 0):
        assert handle.whole and not handle.kept
    unused(rig, [handle])
