"""Scenarios 1–4, 7–13: handles alone on the fake device."""

from __future__ import annotations

import gc
import weakref

import comfy.model_management as mm
import torch

from mizuoto_runtime.errors import NotEnoughMemory

from .rig import FAKE, MB, SIZE_BYTES, UNIT_BYTES, bridge, calls, component, fake_device, given
from .rig import told_extra as told

UNITS_AND_FIXED = 9


def scenario_01_a_fresh_load_gets_what_the_formula_says() -> None:
    for memory in (0, 2 << 30):
        with fake_device(4 << 30) as rig, told() as extras:
            handle = component("h")
            assert torch.equal(rig.run(handle, memory), handle.module(given()))
            minimum = max(rig.floor_bytes, memory + mm.extra_reserved_memory())
            assert extras == [round(rig.total_bytes - minimum, 3)]
            assert handle.whole and rig.entries == [handle.entry]
            rig.check_books()


def scenario_01_what_is_short_is_short_by_comfyuis_own_measure() -> None:
    with fake_device(SIZE_BYTES // 2) as rig, told() as extras:
        handle = component("h")
        expected = handle.module(given())
        assert torch.equal(rig.run(handle), expected)
        assert extras == [round(rig.total_bytes - rig.floor_bytes, 3)]
        assert 0 < handle.held_bytes <= SIZE_BYTES // 2
        rig.check_books()


def scenario_02_a_reload_keeps_the_weights_and_one_entry() -> None:
    detach, seen = calls(bridge.Core, "detach")
    with fake_device(4 * SIZE_BYTES) as rig, detach:
        handle = component("h")
        expected = rig.run(handle)
        weight = handle.module.layers[0].weight
        mm.load_models_gpu([handle.entry])
        assert seen == [(("unpatch_all", False),)]
        assert handle.module.layers[0].weight is weight and handle.held_bytes == SIZE_BYTES
        assert rig.entries == [handle.entry]
        assert torch.equal(rig.run(handle), expected)
        rig.check_books()


def scenario_02_controlnets_way_of_loading_what_is_loaded_again() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        first, second = component("a"), component("b", 2)
        expected = [rig.run(handle) for handle in (first, second)]
        mm.load_models_gpu(mm.loaded_models(only_currently_used=True))
        assert set(rig.entries) == {first.entry, second.entry}
        assert [torch.equal(rig.run(handle), each) for handle, each in zip((first, second), expected, strict=True)]
        rig.check_books()


def scenario_03_a_huge_working_memory_takes_the_weights_away() -> None:
    with fake_device(4 * SIZE_BYTES) as rig, told() as extras:
        handle = component("h")
        expected = rig.run(handle)
        mm.load_models_gpu([handle.entry], memory_required=1 << 40)
        assert extras[-1] == -SIZE_BYTES
        assert handle.held_bytes == 0 and rig.entries == [handle.entry]
        assert torch.equal(rig.run(handle, 1 << 40), expected)
        assert 0 < handle.held_bytes < SIZE_BYTES, "an estimate never refuses: the least is tried"
        rig.check_books()


def scenario_03_a_little_too_much_takes_a_few_units() -> None:
    with fake_device(2 * SIZE_BYTES) as rig:
        handle = component("h")
        rig.run(handle)
        beyond = rig.free_bytes - int(mm.extra_reserved_memory()) + UNIT_BYTES + 1
        mm.load_models_gpu([handle.entry], memory_required=beyond)
        assert handle.held_bytes == SIZE_BYTES - 2 * UNIT_BYTES
        rig.check_books()


def scenario_04_each_vram_state() -> None:
    modes = {"NO_VRAM": "none", "LOW_VRAM": "low", "NORMAL_VRAM": "normal", "HIGH_VRAM": "high", "SHARED": "shared"}
    allowed = {"NO_VRAM": 0.1, "HIGH_VRAM": 1e32, "SHARED": 1e32}
    for state, mode in modes.items():
        with fake_device(4 * SIZE_BYTES, vram_state=state) as rig, told() as extras:
            handle = component("h")
            expected = handle.module(given())
            assert rig.manager.policy.mode == mode
            assert torch.equal(rig.run(handle), expected)
            assert handle.whole is (mode not in ("none", "low"))
            assert extras == [allowed.get(state, round(rig.total_bytes - rig.floor_bytes, 3))]
            rig.check_books()


def scenario_04_a_forced_full_load() -> None:
    with fake_device(SIZE_BYTES // 2) as rig, told() as extras:
        handle = component("h")
        expected = rig.run(handle)
        held = handle.held_bytes
        mm.load_models_gpu([handle.entry], force_full_load=True)
        assert extras[-1] == 1e32 and handle.held_bytes == held, "allowed is not obliged"
        assert torch.equal(rig.run(handle), expected)
        rig.check_books()


def scenario_07_too_little_freed_becomes_a_detach() -> None:
    detach, seen = calls(bridge.Core, "detach")
    with fake_device(4 * SIZE_BYTES) as rig, detach:
        handle = component("h")
        expected = rig.run(handle)
        mm.free_memory(rig.free_bytes + SIZE_BYTES + MB, FAKE)
        assert seen == [(True,)] and rig.entries == [] and handle.held_bytes == 0
        assert torch.equal(rig.run(handle), expected)
        rig.check_books()


def scenario_08_unload_all_models_and_the_next_phase_registers_again() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        expected = rig.run(handle)
        mm.unload_all_models()
        assert rig.entries == [] and rig.device.held_bytes() == 0
        assert torch.equal(rig.run(handle), expected)
        assert rig.entries == [handle.entry]
        rig.check_books()


def scenario_08_a_phase_whose_entry_was_taken_away_ends_first() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        expected = handle.module(given())
        with rig.phase(handle):
            mm.unload_all_models()
            assert rig.entries == [] and handle.whole
            assert torch.equal(handle.module(given()), expected)
        assert handle.held_bytes == 0
        rig.check_books()
        assert torch.equal(rig.run(handle), expected) and rig.entries == [handle.entry]


def scenario_09_keep_loaded_protects_the_running_phase() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        idle, busy = component("idle"), component("busy", 2)
        rig.run(idle)
        with rig.phase(busy):
            own = [entry for entry in mm.current_loaded_models if entry.model is busy.entry]
            mm.free_memory(1e30, FAKE, keep_loaded=own)
            assert busy.whole and rig.entries == [busy.entry] and idle.held_bytes == 0
            rig.check_books()


def scenario_09_an_outer_phase_keeps_its_weights_while_an_inner_one_loads() -> None:
    with fake_device(SIZE_BYTES + 3 * UNIT_BYTES) as rig:
        outer, inner = component("outer"), component("inner", 2)
        expected = [each.module(given()) for each in (outer, inner)]
        with rig.phase(outer):
            with rig.phase(inner):
                assert outer.whole and not inner.whole
                assert set(rig.entries) == {outer.entry, inner.entry}
                rig.check_books()
                assert torch.equal(inner.module(given()), expected[1])
            assert torch.equal(outer.module(given()), expected[0])


def scenario_10_without_smart_memory_others_leave_on_every_load() -> None:
    with fake_device(8 * SIZE_BYTES, smart=False) as rig:
        first, second = component("a"), component("b", 2)
        expected = rig.run(first)
        rig.run(second)
        assert first.held_bytes == 0 and rig.entries == [second.entry]
        assert torch.equal(rig.run(first), expected)
        rig.check_books()


def scenario_11_a_dropped_handle_leaves_no_entry() -> None:
    for spare in (4 * SIZE_BYTES, SIZE_BYTES // 2):
        check_dropped(spare)


def check_dropped(spare_bytes: int) -> None:
    with fake_device(spare_bytes) as rig:
        handle = component("h")
        rig.run(handle)
        assert handle.whole is (spare_bytes > SIZE_BYTES)
        gone = weakref.ref(handle.entry), weakref.ref(handle.entry.model)
        gc.disable()
        try:
            del handle
        finally:
            gc.enable()
        assert [each() for each in gone] == [None, None]
        assert mm.current_loaded_models == [] and rig.device.held_bytes() == 0
        mm.free_memory(1e30, FAKE)


def scenario_12_a_shrinking_that_fails_leaves_nothing_resident() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        expected = rig.run(handle)
        residence = handle.residence
        assert residence is not None

        def fail(*arguments: object, **named: object) -> int:
            raise MemoryError("no RAM for the copy back")

        residence.stop_streaming, before = fail, residence.stop_streaming
        try:
            mm.load_models_gpu([handle.entry], memory_required=rig.total_bytes - SIZE_BYTES // 2)
        except MemoryError:
            residence.stop_streaming = before
        else:
            raise AssertionError("the error is ComfyUI's to see")
        assert rig.entries == []
        mm.load_models_gpu([handle.entry])
        rig.check_books()
        assert torch.equal(rig.run(handle), expected)


def scenario_12_a_placement_that_fails_keeps_the_books_true() -> None:
    for number in range(1, 12):
        with fake_device(4 * SIZE_BYTES) as rig:
            handle = component("h")
            expected = handle.module(given())
            left = iter(range(number - 1, -1, -1))

            def fail(size_bytes: int, left: object = left) -> None:
                if next(left, 1) == 0:  # type: ignore[call-overload]
                    raise NotEnoughMemory("simulated failure")

            rig.device.before_allocation = fail
            try:
                rig.run(handle)
            except NotEnoughMemory:
                assert number <= UNITS_AND_FIXED
            rig.device.before_allocation = None
            rig.check_books()
            assert torch.equal(rig.run(handle), expected)
            rig.check_books()


def scenario_13_a_device_without_an_index_is_refused() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        for name, own in (("cpu", FAKE), ("cuda", torch.device("cuda", 0))):
            try:
                bridge.load_device(name, own)
            except ValueError as error:
                assert name in str(error) and str(own) in str(error)
            else:
                raise AssertionError(f"{name} was taken for {own}")
        assert bridge.load_device("mps:0", torch.device("mps")) == torch.device("mps")
        assert bridge.load_device("cuda:1", torch.device("cuda", 0)) == torch.device("cuda", 1)
        handle = component("h")
        rig.run(handle)
        assert handle.entry.load_device == mm.get_torch_device() == FAKE
