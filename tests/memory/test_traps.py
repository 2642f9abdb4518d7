"""The 29 faults of designs of this kind. `test_trap_NN…` proves that this one doesn't have it; they are in these files:

1 order by module: test_plan, test_schedule; benchmark: residency
2 embeddings on the device: here
3 a reserve of whole units: here, test_plan; benchmark: residency
4 prefetch evicts what is needed next: test_ahead
5 one order table for all: test_ahead; benchmark: copied
6 Python for each tensor: here; benchmark: bookkeeping, streaming
7 copies into fresh allocations: test_ahead
8 a lock held while placing: test_threads; benchmark: reports
9 over-commit in passing: here, machine (`books_are_true`)
10 a cap for good: here
11 nested phases: here, test_workspace, test_manager (`a_phase_inside…`), test_threads (`inside_their_own_phases…`)
12 calibration shared: test_calibration
13 held bytes counted twice: test_ram
14 out of memory not recognised: here
15 a retry that isn't exact: here, test_manager (`a_retry_replays…`)
16 entering costs O(modules): here; benchmark: bookkeeping
17 cancel skips hooks: test_changes, test_ahead (`a_cancel_between…`), test_manager (`threads_that_share…`)
18 replace inside a phase: test_changes
19 patched weights lost: test_changes, machine (`change`, `load_state`)
20 weights that don't stream: test_odd_modules, test_streaming (`every_kind…`)
21 shared buffers, tied weights: test_odd_modules
22 state leaks: test_odd_modules, test_streaming (`can_be_read_copied_and_pickled`)
23 holes in the strict guard: test_odd_modules
24 an abandoned generator: test_books
25 the pin budget drifts: test_pinning, test_leaks, machine (`_nothing_stays`)
26 a group's minimum: here, test_books (`slots_that_others…`)
27 always evict: here
28 loading, the reserve, `streamed_mb`: here, test_ram; benchmark: loading
29 unmanaged parts: here, test_lmcodec (`every_kind_of_part_streams`), test_conformance
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mizuoto_runtime.errors import Cancelled, NotEnoughMemory
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.oom import SIGNS, is_out_of_memory
from tests.memory.test_manager import Rig
from tests.memory.test_threads import in_threads
from tests.memory.tiny import (
    FIXED,
    INPUTS,
    ROWS,
    SIZE,
    UNIT,
    WIDTH,
    Tiny,
    component,
    layers,
    linear,
    made,
    output,
)

TABLE_BYTES = ROWS * WIDTH * 4
TRAP = re.compile(r"^def test_trap_(\d\d)_", re.MULTILINE)
TESTS = Path(__file__).parents[1]


def test_every_trap_has_a_test_of_its_number() -> None:
    found = {int(number) for path in TESTS.rglob("test_*.py") for number in TRAP.findall(path.read_text("utf-8"))}
    assert found == set(range(1, 30))


def test_trap_02_an_embedding_that_is_only_indexed_is_no_part_of_the_minimum() -> None:
    handle = component("embedding")
    before = handle.minimum_bytes(1)
    handle.mark(handle.module.embedding, "gather")
    assert handle.minimum_bytes(1) == before - TABLE_BYTES
    rig = Rig(handle.minimum_bytes(1))
    with rig.context().use([handle], 0):
        assert torch.equal(output(handle.module), output(made("embedding", 1)))
        assert handle.streamed_bytes == 3 * UNIT + INPUTS.shape[1] * WIDTH * 4
    assert rig.device.peak_bytes <= rig.device.size_bytes


@pytest.mark.parametrize("short_bytes", [0, 1])
def test_trap_02_its_rows_are_looked_up_in_ram_only_where_room_is_short(short_bytes: int) -> None:
    handle = component("embedding")
    handle.mark(handle.module.embedding, "gather")
    with Rig(handle.size_bytes - short_bytes).context().use([handle], 0):
        assert torch.equal(output(handle.module), output(made("embedding", 1)))
        assert handle.streamed_bytes == short_bytes * INPUTS.shape[1] * WIDTH * 4
        assert handle.loaded_bytes == handle.size_bytes - short_bytes * TABLE_BYTES


def test_trap_02_an_embedding_that_a_head_shares_is_not_gathered() -> None:
    handle = component("tied embedding")
    before = handle.minimum_bytes(1)
    handle.mark(handle.module.embedding, "gather")
    assert handle.minimum_bytes(1) == before
    with Rig(before).context().use([handle], 0):
        assert torch.equal(output(handle.module), output(made("tied embedding", 1)))


@pytest.mark.parametrize("percent", [50, 75, 96, 99])
def test_trap_03_uneven_units_reserve_only_what_is_held_at_once(percent: int) -> None:
    sizes = [1, 2, 1, 3, 1, 1, 2]
    module = Tiny([nn.Sequential(*layers(count)) for count in sizes]).eval().requires_grad_(False)
    expected = output(module)
    handle = ModelHandle("h", module, "oneshot")
    budget = handle.size_bytes * percent // 100
    with Rig(budget).context().use([handle], 0):
        assert torch.equal(output(module), expected)
        assert handle.streamed_bytes <= handle.size_bytes - budget + 3 * UNIT
        assert handle.held_bytes > budget - UNIT


def test_trap_03_an_outsized_unit_is_divided_at_its_layers() -> None:
    module = Tiny([linear(), nn.Sequential(*layers(12)), linear(), linear()]).eval().requires_grad_(False)
    expected = output(module)
    handle = ModelHandle("h", module, "oneshot")
    assert handle.minimum_bytes(1) == handle.fixed_bytes + UNIT
    with Rig(handle.minimum_bytes(1)).context().use([handle], 0):
        assert torch.equal(output(module), expected)


class Copied(TorchDispatchMode):
    """Counts the copies, and the operations that take memory."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def test_trap_06_a_unit_of_seven_layers_moves_in_one_copy_and_takes_no_memory() -> None:
    module = Tiny([nn.Sequential(*layers(7)) for _ in range(3)]).eval().requires_grad_(False)
    handle = ModelHandle("h", module, "sequence")
    with Copied() as plain:
        output(module)
    with Rig(handle.minimum_bytes(1)).context().use([handle], 0):
        output(module)
        with Copied() as streamed:
            output(module)
    assert streamed.counts - plain.counts == Counter({"aten.copy_.default": 3})


def test_trap_09_what_is_held_never_exceeds_the_budget_while_members_change() -> None:
    reserve = UNIT // 2
    rig = Rig(2 * SIZE + reserve, reserve_bytes=reserve)
    handles = [component("uneven", seed=1), component(seed=2), component("out of order", seed=3)]
    expected = [output(handle.module) for handle in handles]
    for chosen in ([0], [0, 1], [1, 2, 0], [2], [0, 2], [1], [0, 1, 2]):
        phase = [handles[index] for index in chosen]
        with rig.context().use(phase, 0):
            for index in chosen:
                assert torch.equal(output(handles[index].module), expected[index])
        assert rig.device.peak_bytes <= rig.device.size_bytes - reserve


def failing(times: int) -> Callable[[], str]:
    left = [times]

    def attempt() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise MemoryError("once")
        return "done"

    return attempt


def test_trap_10_a_model_is_whole_again_when_there_is_more_room() -> None:
    rig, handle = Rig(2 * SIZE), component()
    rig.context().run("step", [handle], failing(1), SIZE // 2)
    assert handle.cap is not None and not handle.whole
    with rig.context().use([handle], SIZE // 2):
        assert handle.held_bytes <= SIZE // 2, "as much as when it ran out"
    with rig.context().use([handle], SIZE // 2 - UNIT):
        assert not handle.whole and handle.held_bytes > SIZE // 2, "by as much as there is more"
    rig.device.size_bytes += SIZE
    with rig.context().use([handle], 0):
        assert handle.whole and handle.cap is None


def test_trap_10_nothing_is_tried_twice_in_the_same_way() -> None:
    for mode, tried in (("none", [False]), ("high", [True, False, False]), ("normal", [True, False, False])):
        rig, handle, found = Rig(1 << 30, mode=mode), long(), list[tuple[bool, int]]()

        def attempt(handle: ModelHandle = handle, found: list[tuple[bool, int]] = found) -> None:
            found.append((handle.whole, handle.held_bytes))
            raise MemoryError("always")

        with pytest.raises(NotEnoughMemory):
            rig.context().run("step", [handle], attempt, 0)
        assert [whole for whole, _ in found] == tried
        held = [size_bytes for _, size_bytes in found]
        assert held == sorted(set(held), reverse=True)


def long() -> ModelHandle:
    return ModelHandle("long", Tiny(layers(12)).eval().requires_grad_(False), "sequence")


def test_trap_11_an_inner_phase_makes_do_with_what_the_outer_one_leaves() -> None:
    rig = Rig(SIZE + FIXED + UNIT)
    outer, inner, third = component(seed=1), component(seed=2), component(seed=3)
    ctx = rig.context()
    with ctx.use([outer], 0):
        with ctx.use([inner, outer], 0):
            assert outer.whole and not inner.whole
            assert torch.equal(output(inner.module), output(made("plain", 2)))
            assert torch.equal(output(outer.module), output(made("plain", 1)))
        with ctx.use([third], 0):
            assert inner.held_bytes == 0, "the first inner phase has ended"
            assert torch.equal(output(third.module), output(made("plain", 3)))
        assert torch.equal(output(outer.module), output(made("plain", 1)))
    assert set(ctx.memory_report().components) == {"plain 1", "plain 2", "plain 3"}


@pytest.mark.parametrize("sign", SIGNS)
def test_trap_14_every_sign_of_failed_allocations_is_recognised(sign: str) -> None:
    for text in (sign, sign.upper(), f"CUDA error: {sign} when calling `cublasCreate(handle)`"):
        assert is_out_of_memory(RuntimeError(text))
    wrapped = ValueError("the decoder failed")
    wrapped.__cause__ = RuntimeError(sign)
    assert is_out_of_memory(wrapped)
    assert not is_out_of_memory(ValueError(sign)), "a text about memory"


def test_trap_14_torchs_own_errors_are_recognised_and_others_are_not() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("Tried to allocate 2.00 GiB"))
    assert is_out_of_memory(MemoryError())
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(raised.value), str(raised.value)
    for error in (RuntimeError("shape mismatch"), Cancelled("enough"), KeyboardInterrupt(), OSError("disk full")):
        assert not is_out_of_memory(error)


def test_trap_15_a_generator_made_inside_the_attempt_starts_anew() -> None:
    rig, handle, draws = Rig(1 << 30), long(), list[torch.Tensor]()
    ctx, given = rig.context(), torch.Generator().manual_seed(5)

    def attempt() -> torch.Tensor:
        inner = torch.Generator().manual_seed(int(torch.randint(1 << 30, (), generator=ctx.rng)))
        draws.append(torch.randn(3, generator=inner) + torch.randn(3, generator=given))
        ctx.warn(f"attempt {len(draws)}")
        ctx.applied.setdefault("notes", []).append(len(draws))  # type: ignore[attr-defined]
        if len(draws) < 3:
            raise MemoryError("again")
        return draws[-1]

    result = ctx.run("step", [handle], attempt, 0, generators=[given])
    assert all(torch.equal(draw, result) for draw in draws)
    assert [text for text in ctx.warnings if text.startswith("attempt")] == ["attempt 3"]
    assert ctx.applied == {"notes": [3], "oom_retries": 2}


def test_trap_15_notes_from_before_a_failed_attempt_are_as_they_were() -> None:
    rig, handle = Rig(1 << 30), long()
    ctx, attempts = rig.context(), list[int]()
    ctx.applied["tiles"] = [1]

    def attempt() -> None:
        attempts.append(1)
        ctx.applied["tiles"].append(2)  # type: ignore[attr-defined]
        if len(attempts) < 2:
            raise MemoryError("again")

    ctx.run("step", [handle], attempt, 0)
    assert ctx.applied["tiles"] == [1, 2]


def test_trap_15_a_fallback_that_runs_out_too_is_one_clear_error() -> None:
    rig, handle = Rig(2 * SIZE, oom_fallback=True), component()
    ctx = rig.context()
    with pytest.raises(NotEnoughMemory, match="even with smaller tiles"):
        ctx.run("step", [handle], failing(9), 0, fallback=("smaller tiles", failing(9)))
    assert "fallbacks" not in ctx.applied
    assert not handle.busy


def python_calls(act: Callable[[], None]) -> int:
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("partial", [False, True])
def test_trap_16_entering_a_phase_costs_the_same_for_any_number_of_layers(partial: bool) -> None:
    counts = []
    for number in (4, 40):
        handle = ModelHandle("h", Tiny(layers(number)).eval().requires_grad_(False), "sequence")
        rig = Rig(handle.size_bytes - partial)

        def enter(rig: Rig = rig, handle: ModelHandle = handle) -> None:
            with rig.context().use([handle], 0):
                pass

        enter()
        enter()
        counts.append(min(python_calls(enter) for _ in range(3)))  # a collection of rubbish calls finalizers
    assert counts[0] == counts[1] < 300


def test_trap_26_the_partial_handles_of_a_phase_stream_through_the_same_slots() -> None:
    pair = [component(seed=1), component(seed=2)]
    rig = Rig(2 * FIXED + UNIT)
    assert rig.manager.minimum_bytes(pair) == rig.device.size_bytes
    with rig.context().use(pair, 0):
        for seed, handle in enumerate(pair, 1):
            assert torch.equal(output(handle.module), output(made("plain", seed)))
        assert sum(handle.held_bytes for handle in pair) == rig.device.held_bytes() == rig.device.size_bytes


class Moved:
    """Counts the bytes that phases move: placed, and streamed."""

    def __init__(self, rig: Rig, handles: list[ModelHandle]) -> None:
        self.rig = rig
        self.handles = handles
        self.size_bytes = 0

    def phase(self, handle: ModelHandle, passes: int) -> None:
        before = {each: each.loaded_bytes for each in self.handles}
        ctx = self.rig.context()
        with ctx.use([handle], 0):
            self.size_bytes += sum(max(0, each.loaded_bytes - before[each]) for each in self.handles)
            for _ in range(passes):
                output(handle.module)
        self.size_bytes += ctx.memory_report().streamed_bytes


def test_trap_27_a_part_that_runs_once_a_round_streams_what_is_short() -> None:
    pair = [component(order="oneshot", seed=1), component(order="oneshot", seed=2)]
    rounds, short = 6, 2 * UNIT
    moved = Moved(Rig(2 * SIZE - short + UNIT), pair)
    for _ in range(rounds):
        for handle in pair:
            moved.phase(handle, passes=1)
    streaming = 2 * SIZE - short + rounds * short
    evicting = 2 * SIZE + 2 * (rounds - 1) * short
    assert moved.size_bytes <= 1.1 * min(streaming, evicting)


def test_trap_27_a_model_that_runs_every_layer_for_each_token_evicts() -> None:
    model, codec = component("plain", "sequence", 1), component("plain", "oneshot", 2)
    rig = Rig(2 * SIZE - UNIT)
    for _ in range(3):
        with rig.context().use([model], 0):
            assert model.whole
            for _ in range(20):
                output(model.module)
        with rig.context().use([codec], 0):
            output(codec.module)


def test_trap_28_each_phase_reports_what_it_streamed_itself() -> None:
    rig = Rig(2 * (FIXED + UNIT), mode="none")
    pair = [component(seed=1), component(seed=2)]
    contexts = [rig.context(), rig.context()]
    with ExitStack() as outer:
        outer.enter_context(contexts[0].use(pair[:1], 0))
        output(pair[0].module)
        with contexts[1].use(pair[1:], 0):
            for _ in range(2):
                output(pair[1].module)
        output(pair[0].module)
    streamed = [ctx.memory_report().streamed_bytes for ctx in contexts]
    assert streamed == [2 * 4 * UNIT, 2 * 4 * UNIT]

    def beside(number: int) -> None:
        ctx = rig.context()
        for _ in range(3):
            with ctx.use([pair[number]], 0):
                output(pair[number].module)
        found[number] = ctx.memory_report().streamed_bytes

    found = [0, 0]
    in_threads(lambda: beside(0), lambda: beside(1))
    assert found == [3 * 4 * UNIT] * 2


def test_trap_28_the_reserve_is_a_share_of_a_small_device_and_bounded_on_a_large_one() -> None:
    for size_bytes, reserve in ((8 * SIZE, SIZE), (1 << 40, 1 << 30)):
        rig, handle = Rig(size_bytes, reserve_bytes=None), component()
        assert rig.manager.room.reserve_bytes(rig.device, 0) == reserve
        with rig.context().use([handle], size_bytes - reserve - SIZE):
            assert handle.whole
        with rig.context().use([handle], size_bytes - reserve - SIZE + 1):
            assert not handle.whole


def test_trap_29_what_a_phase_holds_is_all_that_the_device_is_charged() -> None:
    rig = Rig(8 * SIZE)
    handles = [component(kind, seed=seed) for seed, kind in enumerate(("embedding", "counting", "strided", "tied"))]
    for size_bytes in (8 * SIZE, 2 * SIZE):
        rig.device.size_bytes = size_bytes
        rig.policy = replace(rig.policy, host_copies="off")
        with rig.context().use(handles, 0):
            for handle in handles:
                output(handle.module)
            assert rig.device.held_bytes() == sum(handle.held_bytes for handle in handles)
        for handle in handles:
            handle.unload()
        assert rig.device.held_bytes() == 0
