"""Scenarios 2, 5, 6, 8, 12: at a bad moment; 16, 17, 18, 19, 20, 22: other ways in, threads, a plain CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import comfy.model_management as mm
import comfy.model_patcher
import torch

from mizuoto_runtime.memory.device import DeviceService
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.manager import ModelManager
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.policy import VramPolicy

from .rig import (
    FAKE,
    SIZE_BYTES,
    UNIT_BYTES,
    UNITS,
    Layers,
    bridge,
    component,
    fake_device,
    given,
    needs,
    parameters,
    told_extra,
)
from .shared import locked_ram


def failing(error: BaseException) -> Callable[..., int]:
    def fail(*arguments: object, **named: object) -> int:
        raise error

    return fail


def scenario_02_other_weights_in_a_handle_are_an_entry_of_their_size() -> None:
    with fake_device(8 * SIZE_BYTES) as rig:
        handle = component("h")
        rig.run(handle)
        handle.replace(Layers(7, UNITS + 4).eval().requires_grad_(False))
        rig.check_books()
        expected = handle.module(given())
        assert torch.equal(rig.run(handle), expected)
        assert rig.entries == [handle.entry]
        assert handle.entry.model_size() == handle.entry.loaded_size() == SIZE_BYTES + 4 * UNIT_BYTES


def scenario_05_a_fraction_of_a_byte_more_is_a_unit_more() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        rig.run(handle)
        mm.free_memory(rig.free_bytes + UNIT_BYTES + 0.5, FAKE)
        assert handle.held_bytes == SIZE_BYTES - 2 * UNIT_BYTES and rig.entries == [handle.entry]


def scenario_06_an_error_while_comfyuis_own_model_gives_way_is_the_requests_and_the_books_stay_true() -> None:
    patcher = comfy.model_patcher.ModelPatcher
    for error in (torch.cuda.OutOfMemoryError("simulated"), RuntimeError("simulated"), KeyboardInterrupt()):
        with fake_device(SIZE_BYTES + UNIT_BYTES) as rig:
            handle, model = component("h"), rig.comfy()
            expected = handle.module(given())
            mm.load_models_gpu([model])
            with patch.multiple(patcher, partially_unload=failing(error), detach=failing(error)):
                try:
                    rig.run(handle)
                except BaseException as raised:
                    assert raised is error
                else:
                    raise AssertionError("the error is the request's to see")
            assert not handle.busy
            rig.check_books()
            assert torch.equal(rig.run(handle), expected)
            rig.check_books()


def scenario_06_whoever_is_alone_on_the_device_asks_for_no_more() -> None:
    with fake_device(SIZE_BYTES // 2) as rig:
        handle = component("h")
        rig.run(handle)
        with patch.object(mm, "load_models_gpu") as load:
            rig.run(handle)
        assert not handle.whole and not load.called


def out_of_memory_once(handle: ModelHandle) -> Callable[[], torch.Tensor]:
    failures = [MemoryError("simulated")]

    def compute() -> torch.Tensor:
        if failures:
            raise failures.pop()
        output: torch.Tensor = handle.module(given())
        return output

    return compute


def scenario_06_out_of_memory_in_a_phase_takes_nothing_from_the_one_around_it() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        outer, inner = component("outer"), component("inner", 2)
        expected = inner.module(given())
        with rig.phase(outer):
            assert torch.equal(rig.context().run("step", [inner], out_of_memory_once(inner), 0), expected)
            assert outer.whole and outer.entry in rig.entries
            rig.check_books()


def scenario_06_what_comfyui_gave_up_is_reason_enough_to_run_again() -> None:
    with fake_device(4 * SIZE_BYTES, vram_state="NO_VRAM") as rig:
        handle, model = component("h"), rig.comfy()
        expected = rig.run(handle)
        with patch.object(mm, "vram_state", mm.VRAMState.NORMAL_VRAM):
            mm.load_models_gpu([model])
        assert model.loaded_size() == SIZE_BYTES
        assert torch.equal(rig.context().run("step", [handle], out_of_memory_once(handle), 0), expected)
        assert model.loaded_size() == 0


def scenario_08_a_handle_that_two_phases_use_leaves_with_the_last_of_them() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        expected = handle.module(given())
        with rig.phase(handle):
            with rig.phase(handle):
                mm.unload_all_models()
            assert handle.whole and torch.equal(handle.module(given()), expected)
        assert handle.held_bytes == 0
        rig.check_books()
        assert torch.equal(rig.run(handle), expected)


def scenario_12_a_shrinking_that_fails_sends_everything_away() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        expected = rig.run(handle)
        answers = iter([failing(MemoryError("no RAM for the copy back")), rig.manager.let_go])
        with patch.object(rig.manager, "let_go", lambda *arguments: next(answers)(*arguments)):
            try:
                mm.load_models_gpu([handle.entry], memory_required=rig.total_bytes - SIZE_BYTES // 2)
            except MemoryError:
                assert rig.entries == [] and handle.held_bytes == rig.device.held_bytes() == 0
            else:
                raise AssertionError("the error is ComfyUI's to see")
        assert torch.equal(rig.run(handle), expected)
        rig.check_books()


def scenario_16_room_in_ram_on_every_device() -> None:
    needs("for_dynamic" in parameters(mm.free_memory), "free_memory has no device None")
    with fake_device(4 * SIZE_BYTES, host_copies="on") as rig:
        handle = component("h")
        expected = rig.run(handle)
        mm.free_memory(0, None, pins_required=1 << 50, ram_required=1 << 50)
        assert handle.held_bytes == SIZE_BYTES and rig.entries == [handle.entry]
        if hasattr(mm, "get_free_ram"):
            assert handle.host_copy_bytes == 0, "its RAM went, its place on the device didn't"
        mm.unload_all_models()
        assert rig.device.held_bytes() == 0
        assert torch.equal(rig.run(handle), expected)
        rig.check_books()


def scenario_16_a_phase_that_runs_keeps_its_copies_in_ram() -> None:
    with fake_device(4 * SIZE_BYTES, host_copies="on") as rig:
        handle = component("h")
        with rig.phase(handle):
            assert handle.entry.partially_unload_ram(1 << 40) == 0 and handle.host_copy_bytes > 0
        assert handle.entry.partially_unload_ram(1 << 40) == SIZE_BYTES and handle.host_copy_bytes == 0


def scenario_17_unloading_another_model_and_its_clones() -> None:
    needs(hasattr(mm, "unload_model_and_clones"), "there is no unload_model_and_clones")
    with fake_device(8 * SIZE_BYTES) as rig:
        handle, other = component("h"), rig.comfy()
        rig.run(handle)
        mm.load_models_gpu([other])
        mm.unload_model_and_clones(other)
        assert rig.entries == [handle.entry] and handle.whole
        rig.check_books()


def scenario_18_a_phase_takes_off_what_was_given_back_meanwhile() -> None:
    with locked_ram(100 << 20), fake_device(4 * SIZE_BYTES) as rig:
        pins = rig.manager.host.pin_host()
        assert pins is not None and pins.reserve(10 << 20)
        pins.give_back(10 << 20)
        rig.run(component("h"))
        assert mm.TOTAL_PINNED_MEMORY == 0


def scenario_19_leaving_outside_inference_mode() -> None:
    for copies in ("on", "off"):
        with fake_device(4 * SIZE_BYTES, host_copies=copies) as rig:
            with torch.inference_mode():
                handle = component("made inside")
                handle.module.register_buffer("calls", torch.zeros(3))
                handle.replace(handle.module)
                with rig.phase(handle):
                    expected = handle.module(given())
                    handle.module.calls += 1
            assert not torch.is_inference_mode_enabled()
            mm.free_memory(rig.free_bytes + UNIT_BYTES, FAKE)
            assert 0 < handle.held_bytes < SIZE_BYTES
            mm.unload_all_models()
            assert handle.held_bytes == 0
            assert torch.equal(rig.run(handle), expected)
            assert torch.equal(handle.module.calls, torch.ones(3)), "what changed there comes back"
            rig.check_books()


def scenario_20_another_thread_is_refused() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        errors: list[str] = []

        def call() -> None:
            try:
                rig.run(handle)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=call, name="someone else's")
        thread.start()
        thread.join()
        assert len(errors) == 1 and "someone else's" in errors[0]
        assert rig.entries == [] and handle.held_bytes == 0 and not handle.busy


def scenario_8_what_comfyui_takes_is_told_and_nothing_else() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        told: list[int] = []
        manager = ModelManager(
            bridge.ComfyHost(gave_way=lambda: told.append(manager.device.held_bytes())),
            rig.manager.devices,
            lambda: VramPolicy(mode="normal"),
        )
        rig.adopt(manager)
        handle = component("h")
        expected = rig.run(handle)
        mm.free_memory(0, FAKE)
        assert told == [], "nothing was taken"
        mm.free_memory(rig.free_bytes + UNIT_BYTES, FAKE)
        assert told == [SIZE_BYTES - UNIT_BYTES]
        with rig.phase(handle):
            mm.free_memory(1e30, FAKE)
        mm.unload_all_models()
        assert told[-1] == 0 and handle.held_bytes == 0
        assert torch.equal(rig.run(handle), expected)


def scenario_22_on_a_plain_cpu_nothing_is_registered_and_comfyui_would_allow_all() -> None:
    host = bridge.ComfyHost()
    assert host.device() == "cpu" and host.vram_mode() is None
    manager = ModelManager(host, DeviceService(), VramPolicy)
    handle = component("h")
    weight = handle.module.layers[0].weight
    with PhaseContext("Scenario", manager, torch.Generator()).use([handle], 0):
        assert handle.module.layers[0].weight is weight
    assert mm.current_loaded_models == [] and handle.entry is None and handle.held_bytes == 0
    handle.entry = bridge.HandleAdapter(handle, torch.device("cpu"), manager)
    with told_extra() as extras:
        mm.load_models_gpu([handle.entry])
    assert extras == [1e32] and handle.held_bytes == 0
    mm.current_loaded_models.clear()


def scenario_22_a_phase_on_a_plain_cpu_asks_comfyui_for_the_device_and_for_nothing_else() -> None:
    asked = ("load_models_gpu", "free_memory", "get_free_memory", "minimum_inference_memory", "extra_reserved_memory")
    manager = ModelManager(bridge.ComfyHost(), DeviceService(), VramPolicy)
    handle = component("h")
    expected = handle.module(given())
    with ExitStack() as stack:
        mocks = [stack.enter_context(patch.object(mm, name)) for name in asked]
        output = PhaseContext("Scenario", manager, torch.Generator()).run(
            "step", [handle], lambda: handle.module(given()), 1 << 40
        )
        assert torch.equal(output, expected)
        assert not any(mock.called for mock in mocks)
    assert all(type(module).__module__.startswith("torch") for module in handle.module.layers), "no call is intercepted"
