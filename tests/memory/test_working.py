"""What was measured of a phase's working memory is reserved the next time, for that phase alone."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.memory.calibration import Calibration
from mizuoto_runtime.memory.device import DeviceService
from mizuoto_runtime.memory.manager import ModelManager
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.policy import VramPolicy
from mizuoto_runtime.memory.working import PhaseId
from tests.memory.meters import ToldMeter
from tests.memory.test_manager import SIZE, UNIT, Host, component, run

ESTIMATE = 1000


def manager(measured_bytes: list[int | None], size_bytes: int) -> ModelManager:
    policy = VramPolicy(reserve_bytes=0)
    devices = DeviceService({"cpu": size_bytes}, strict=True)
    return ModelManager(Host(), devices, lambda: policy, Calibration(None), ToldMeter(measured_bytes))


def context(manager: ModelManager, phase: str = "talk") -> PhaseContext:
    return PhaseContext("Talk", manager, torch.Generator(), id=PhaseId("engine", "model", phase))


def test_what_a_step_took_is_reserved_for_the_next_one_of_its_kind() -> None:
    rig, handle = manager([2 * UNIT, None, None, None], SIZE + ESTIMATE), component("h")
    expected = run(handle)
    for phase, step, whole in (("talk", "a", True), ("talk", "b", True), ("hum", "a", True), ("talk", "a", False)):
        held: list[bool] = []

        def compute(held: list[bool] = held) -> torch.Tensor:
            held.append(handle.whole)
            return run(handle)

        assert torch.equal(context(rig, phase).run(step, [handle], compute, ESTIMATE), expected)
        assert held == [whole], (phase, step)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_a_failed_step_teaches_nothing_and_its_measurement_ends(error: type[BaseException]) -> None:
    rig, handle = manager([2 * UNIT, None], SIZE + ESTIMATE), component("h")
    ctx = context(rig)
    with pytest.raises(error), ctx.use([handle], ESTIMATE):
        raise error
    assert rig.working.meter.running == 0  # type: ignore[attr-defined]
    with ctx.use([handle], ESTIMATE):
        assert handle.whole


def test_a_block_that_is_never_left_is_measured_no_longer_than_its_phase() -> None:
    rig, handle = manager([2 * UNIT, None], SIZE + ESTIMATE), component("h")
    ctx = context(rig)
    block = ctx.use([handle], ESTIMATE)
    block.__enter__()
    ctx.close()
    assert rig.working.meter.running == 0  # type: ignore[attr-defined]
    block.__exit__(None, None, None)
    assert not handle.busy
    with ctx.use([handle], ESTIMATE):
        assert handle.whole, "what it took wasn't learnt"
