"""Scenarios 5, 6, 14, 15, 18: beside models of ComfyUI's own, whole, partial and dynamic, and its page-locked RAM."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import comfy.model_management as mm
import comfy.model_patcher
import torch
from torch import nn

from mizuoto_runtime.memory.pinning import Pins
from mizuoto_runtime.types import ModelRef

from .rig import FAKE, MB, SIZE_BYTES, UNIT_BYTES, Rig, bridge, calls, component, fake_device, given, needs, parameters

BOTH = 2 * SIZE_BYTES + MB


def units(size_bytes: float) -> int:
    """Bytes of the whole units that hold so many."""
    return int(-(-size_bytes // UNIT_BYTES) * UNIT_BYTES)


def short_bytes(rig: Rig, need_bytes: int) -> float:
    """What ComfyUI asks others for when it loads something of its own."""
    return need_bytes * 1.1 + rig.floor_bytes - rig.free_bytes


def scenario_05_comfyui_loads_and_the_handle_yields_exactly_what_is_short() -> None:
    for spare in (BOTH, SIZE_BYTES + 4 * UNIT_BYTES, SIZE_BYTES + UNIT_BYTES):
        with fake_device(spare) as rig:
            handle, model = component("h"), rig.comfy()
            expected = rig.run(handle), model.model(given())
            short = short_bytes(rig, SIZE_BYTES)
            mm.load_models_gpu([model])
            assert model.loaded_size() == SIZE_BYTES
            assert handle.held_bytes == max(0, SIZE_BYTES - units(max(0, short)))
            rig.check_books()
            assert torch.equal(model.model(given()), expected[1])
            assert torch.equal(rig.run(handle), expected[0])
            rig.check_books()


def scenario_05_among_several_handles_the_runtimes_own_order_holds() -> None:
    with fake_device(3 * SIZE_BYTES + MB, pinned_models=frozenset({ModelRef("engine", "kept")})) as rig:
        kept, recent, old = component("kept"), component("recent", 2), component("old", 3)
        kept.model = ModelRef("engine", "kept")
        for handle in (kept, old, recent):
            rig.run(handle)
        mm.free_memory(rig.free_bytes + UNIT_BYTES, FAKE)
        assert (kept.whole, recent.whole, old.held_bytes) == (True, True, SIZE_BYTES - UNIT_BYTES)
        mm.free_memory(rig.free_bytes + SIZE_BYTES - 1, FAKE)
        assert (kept.whole, recent.held_bytes, old.held_bytes) == (True, SIZE_BYTES - UNIT_BYTES, 0)
        rig.check_books()


def scenario_06_a_handle_loads_and_comfyui_yields() -> None:
    for spare in (BOTH, SIZE_BYTES + 4 * UNIT_BYTES, SIZE_BYTES + UNIT_BYTES):
        with fake_device(spare) as rig:
            handle, model = component("h"), rig.comfy()
            expected = handle.module(given()), model.model(given())
            mm.load_models_gpu([model])
            short = short_bytes(rig, SIZE_BYTES)
            unload, asked = calls(comfy.model_patcher.ModelPatcher, "partially_unload")
            with unload:
                assert torch.equal(rig.run(handle), expected[0])
            assert [size_bytes for _, size_bytes in asked] == [short] * (0 < short < SIZE_BYTES)
            assert handle.whole and model.loaded_size() <= SIZE_BYTES - max(0, short)
            rig.check_books()
            assert torch.equal(model.model(given()), expected[1])
            mm.load_models_gpu([model])
            assert model.loaded_size() == SIZE_BYTES and torch.equal(model.model(given()), expected[1])
            assert torch.equal(rig.run(handle), expected[0])
            rig.check_books()


def scenario_06_what_is_there_already_is_not_asked_for_again() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle, model = component("h"), rig.comfy()
        rig.run(handle)
        mm.load_models_gpu([model])
        with patch.object(mm, "load_models_gpu") as load:
            rig.run(handle)
        assert not load.called
        rig.check_books()


def scenario_06_working_memory_counts_too() -> None:
    with fake_device(2 * SIZE_BYTES + MB) as rig:
        handle, model = component("h"), rig.comfy()
        rig.run(handle)
        mm.load_models_gpu([model])
        memory = rig.free_bytes - int(mm.extra_reserved_memory()) + UNIT_BYTES
        unload, asked = calls(comfy.model_patcher.ModelPatcher, "partially_unload")
        with unload:
            rig.run(handle, memory)
        assert [size_bytes for _, size_bytes in asked] == [UNIT_BYTES]
        assert handle.whole and 0 < model.loaded_size() < SIZE_BYTES
        rig.check_books()


def scenario_06_out_of_memory_in_a_phase_sends_comfyuis_models_away_and_runs_again() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        handle, model = component("h"), rig.comfy()
        expected = handle.module(given())
        mm.load_models_gpu([model])
        attempts: list[int] = []

        def compute() -> torch.Tensor:
            attempts.append(model.loaded_size())
            if len(attempts) == 1:
                raise torch.cuda.OutOfMemoryError("simulated")
            output: torch.Tensor = handle.module(given())
            return output

        with torch.inference_mode():
            assert torch.equal(rig.context().run("step", [handle], compute, 0), expected)
        assert attempts == [SIZE_BYTES, 0]
        rig.check_books()


class Dynamic(comfy.model_patcher.ModelPatcher):
    """Says that it is dynamic, as models are under comfy-aimdo: pages come and go, without being asked for."""

    def __init__(self, size_bytes: int, module: nn.Module | None = None) -> None:
        self.holds_bytes = size_bytes
        self.asked: list[float] = []
        super().__init__(module or nn.Module(), FAKE, torch.device("cpu"), size=size_bytes)
        self.model.dynamic_pins = {FAKE: {"active": False, "current_prompt": False}}

    def is_dynamic(self) -> bool:
        return True

    def loaded_size(self) -> int:
        return self.holds_bytes

    def partially_load(self, device_to: object, extra_memory: float = 0, force_patch_weights: bool = False) -> None:
        self.holds_bytes = self.size

    def partially_unload(self, device_to: object, memory_to_free: float = 0, force_patch_weights: bool = False) -> int:
        self.asked.append(memory_to_free)
        freed = min(self.holds_bytes, int(memory_to_free) + 1)
        self.holds_bytes -= freed
        return freed

    def detach(self, unpatch_all: bool = True) -> None:
        if unpatch_all:
            self.holds_bytes = 0

    def partially_unload_ram(self, ram_to_unload: float, subsets: object = ()) -> int:
        return 0

    def unregister_inactive_pins(self, size: float, subsets: object = ()) -> int:
        return 0

    def __del__(self) -> None:
        """Nothing is really there."""


def dynamic(rig: Rig) -> Dynamic:
    model = Dynamic(SIZE_BYTES)
    model.holds_bytes = 0
    rig.comfys.add(model)
    mm.load_models_gpu([model])
    model.asked.clear()
    return model


def scenario_14_a_handle_loads_and_dynamic_models_are_asked_for_exactly_what_is_short() -> None:
    with fake_device(2 * SIZE_BYTES) as rig:
        handle, model = component("h"), dynamic(rig)
        short = short_bytes(rig, SIZE_BYTES)
        assert 0 < short < SIZE_BYTES
        rig.run(handle)
        assert model.asked == [short]
        assert handle.whole and 0 < model.holds_bytes < SIZE_BYTES
        rig.check_books()


def scenario_15_a_dynamic_model_loads_and_the_handle_yields_first() -> None:
    needs("for_dynamic" in parameters(mm.free_memory), "there are no dynamic models")
    with fake_device(2 * SIZE_BYTES + 2 * UNIT_BYTES) as rig:
        first, handle = dynamic(rig), component("h")
        expected = rig.run(handle)
        second = Dynamic(SIZE_BYTES)
        second.holds_bytes = 0
        rig.comfys.add(second)
        mm.load_models_gpu([second])
        assert first.asked == [] and first.holds_bytes == SIZE_BYTES
        assert handle.held_bytes < SIZE_BYTES
        rig.check_books()
        first.holds_bytes = 0
        assert torch.equal(rig.run(handle), expected)


class FakeCudart:
    """Locks nothing, and says it did."""

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int:
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        return 0


class InPlace:
    """Locks of the runtime that call nothing."""

    mode, reason = "in place", ""

    def register(self, address: int, size_bytes: int) -> None:
        pass

    unregister = wait = trim = lambda self, *arguments: None


@contextmanager
def locked_ram(most_bytes: int) -> Iterator[Any]:
    """The runtime's side of ComfyUI's books."""
    needs(bridge.PinBooks.kept_by(mm), "nothing is locked")
    books = {"PINNED_MEMORY": {}, "TOTAL_PINNED_MEMORY": 0, "MAX_PINNED_MEMORY": most_bytes}
    with patch.multiple(mm, **books), patch.object(torch.cuda, "cudart", FakeCudart):
        yield bridge.ComfyHost().pin_host()


def total() -> int:
    assert sum(mm.PINNED_MEMORY.values()) == mm.TOTAL_PINNED_MEMORY
    return int(mm.TOTAL_PINNED_MEMORY)


def scenario_18_locked_ram_is_in_one_book() -> None:
    parameter = nn.Parameter(torch.zeros(MB // 4), requires_grad=False)
    with locked_ram(100 * MB) as host:
        assert host.reserve(10 * MB) and total() == 10 * MB
        assert mm.pin_memory(parameter) and total() == 11 * MB
        assert mm.unpin_memory(parameter) and total() == 10 * MB, "B forgets others when its last entry goes"
        assert mm.pin_memory(parameter)
        host.give_back(10 * MB)
        host.settle()
        assert total() == MB and mm.unpin_memory(parameter) and total() == 0


def scenario_18_speech_takes_a_share_and_never_what_is_locked_already() -> None:
    with locked_ram(100 * MB) as host:
        assert not host.reserve(51 * MB) and total() == 0
        assert host.reserve(50 * MB) and not host.reserve(1) and total() == 50 * MB
    with locked_ram(100 * MB) as host:
        mm.TOTAL_PINNED_MEMORY = mm.PINNED_MEMORY[1] = 99 * MB + 1
        assert not host.reserve(MB) and total() == 99 * MB + 1
        assert host.reserve(MB - 1) and total() == 100 * MB
    with locked_ram(-1) as host:
        assert not host.reserve(1)


def scenario_18_what_another_thread_gives_back_is_taken_off_by_the_prompts_thread() -> None:
    with locked_ram(100 * MB) as host:
        assert host.reserve(10 * MB)
        thread = threading.Thread(target=host.give_back, args=(10 * MB,))
        thread.start()
        thread.join()
        assert total() == 10 * MB
        assert host.reserve(MB) and total() == MB


def scenario_18_blocks_that_the_runtime_locks_are_in_the_book() -> None:
    with locked_ram(100 * MB) as host:
        pins = Pins(InPlace(), lambda: 80 * MB, host)  # type: ignore[arg-type]
        block = pins.allocate(8 * MB)
        assert pins.holds(block) and total() == 8 * MB
        assert not pins.holds(pins.allocate(43 * MB)), "more than its share"
        del block
        gc.collect()
        host.settle()
        assert total() == 0


def scenario_18_making_room_for_what_is_to_be_locked() -> None:
    needs(hasattr(mm, "ensure_pin_registerable"), "nobody can be asked for room")
    with locked_ram(100 * MB) as host, patch.object(mm, "ensure_pin_registerable") as ensure:
        assert host.reserve(10 * MB)
        ensure.assert_called_once_with(10 * MB)
