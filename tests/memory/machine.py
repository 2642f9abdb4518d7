"""A machine that does at random what sessions, hosts and users do to handles, and compares each step with a model.

The model is simple: every handle has a twin on the plain CPU that goes through the same calls and changes of weights,
and a list says which phases are open.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import nn

from mizuoto_runtime.errors import Cancelled, NotEnoughMemory
from mizuoto_runtime.memory import current
from mizuoto_runtime.memory.absent import AbsentWeightError
from mizuoto_runtime.memory.copies import Copies, CopiesAtOnce
from mizuoto_runtime.memory.device import Device, DeviceService, SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.locks import SimulatedLocks
from mizuoto_runtime.memory.manager import ModelManager
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.policy import VramPolicy
from mizuoto_runtime.types import Callbacks, Kind
from tests.memory.lazy_copies import LazyCopies
from tests.memory.tiny import KINDS, linear, made
from tests.memory.twins import Held, Host, Open

DEVICES = ("sim:0", "sim:1")
MOST_HANDLES = 4
MOST_PHASES = 3
MOST_LAYERS = 6

NUMBER = st.integers(0, 11)
SET = st.lists(NUMBER, min_size=1, max_size=3)
BYTES = st.sampled_from([0, 1, 70_000, 300_000, 1 << 40])
SIZE = st.integers(3, 24).map(lambda number: number * 50_000)
FAULT = st.none() | st.none() | st.tuples(st.sampled_from(["allocation", "cancel", "interrupt"]), st.integers(1, 9))
Fault = tuple[str, int] | None
ORDER: st.SearchStrategy[Kind] = st.sampled_from(["sequence", "oneshot"])
FREEING = ("gives_way", "unloads", "host_takes", "host_asks", "all_unload", "ram_is_short", "drops_host_copies")
ALTERING = ("change", "load_state", "grow", "reorder", "mark", "replace")


class Machine(RuleBasedStateMachine):
    """steps: of all machines so far."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.policy = VramPolicy(reserve_bytes=0, wait_seconds=0.0)
        self.host = Host(DEVICES[0])
        self.open: list[Open] = []
        self.held: list[Held] = []
        self.seed = 0
        self.left: dict[str, int] = {}
        self.fired = False
        self.locks = SimulatedLocks()

    @initialize(
        strict=st.booleans(),
        sizes=st.tuples(SIZE, SIZE),
        kinds=st.lists(st.sampled_from(list(KINDS)), min_size=2, max_size=3),
        order=ORDER,
    )
    def start(self, strict: bool, sizes: Sequence[int], kinds: Sequence[str], order: Kind) -> None:
        self.devices = DeviceService(dict(zip(DEVICES, sizes, strict=True)), strict=strict)
        self.manager = ModelManager(self.host, self.devices, lambda: self.policy)
        self.manager.copies_for = self._copies
        self.manager.memory.locks_for = lambda device: self.locks
        for device in self._simulated():
            device.before_allocation = lambda size_bytes: self._count("allocation", NotEnoughMemory)
        for kind in kinds:
            self._add(kind, order)

    def teardown(self) -> None:
        while self.open:
            self.open.pop().stack.close()
        self._bring_home()
        self.held.clear()
        if hasattr(self, "devices"):
            self._nothing_stays()

    def _bring_home(self) -> None:
        for held in self.held:
            held.handle.replace(held.module)
        for held in self.held:
            twin = held.twin.state_dict()
            assert all(torch.equal(tensor, twin[name]) for name, tensor in held.module.state_dict().items())

    def _nothing_stays(self) -> None:
        assert [device.held_bytes() for device in self._simulated()] == [0, 0]
        gc.collect()
        self.manager.memory.pins.trim()
        assert self.manager.memory.pins.stats().pinned_bytes == 0, "locked RAM isn't given back"
        assert self.locks.registered == {}

    # what happens

    @precondition(lambda self: len(self.open) < MOST_PHASES)
    @rule(chosen=SET, memory=BYTES, fault=FAULT)
    def begin(self, chosen: list[int], memory: int, fault: Fault) -> None:
        held = self._pick(chosen)
        handles = [each.handle for each in held]
        stack = ExitStack()
        with self._armed(fault, held):
            stack.enter_context(self._context().use(handles, memory))
            self.open.append(Open(stack, held))
            for each in held:
                each.compare()

    @precondition(lambda self: self.open)
    @rule(phase=NUMBER)
    def end(self, phase: int) -> None:
        self.open.pop(phase % len(self.open)).stack.close()

    @precondition(lambda self: self.open)
    @rule(phase=NUMBER, numbers=SET, fault=FAULT)
    def call(self, phase: int, numbers: list[int], fault: Fault) -> None:
        running = self.open[phase % len(self.open)]
        with self._armed(fault):
            for number in numbers:
                running.held[number % len(running.held)].compare()

    @rule(chosen=SET, memory=BYTES, failures=st.integers(0, 3), fault=FAULT)
    def run(self, chosen: list[int], memory: int, failures: int, fault: Fault) -> None:
        held = self._pick(chosen)
        handles = [each.handle for each in held]
        ctx, draws = self._context(), list[torch.Tensor]()

        def attempt() -> torch.Tensor:
            draws.append(torch.randn(2, generator=ctx.rng))
            for each in held:
                each.compare()
            if len(draws) <= failures:
                raise MemoryError("in the phase")
            return draws[-1]

        with self._armed(fault, held, may_fail=failures > 0):
            assert torch.equal(ctx.run("step", handles, attempt, memory), draws[0])
        assert all(torch.equal(draw, draws[0]) for draw in draws)

    @rule(how=st.sampled_from(FREEING), number=NUMBER, size_bytes=BYTES)
    def free(self, how: str, number: int, size_bytes: int) -> None:
        getattr(self, f"_{how}")(self._one(number), size_bytes)

    def _gives_way(self, held: Held, size_bytes: int) -> None:
        if not held.handle.busy:
            with self._frees() as freed:
                freed.append(held.handle.partially_unload(size_bytes))

    def _unloads(self, held: Held, size_bytes: int) -> None:
        with self._frees() as freed:
            freed.append(held.handle.unload_if_idle())
        if not held.handle.busy:
            assert held.handle.held_bytes == 0
            held.true_weights()

    def _host_takes(self, held: Held, size_bytes: int) -> None:
        with self._frees() as freed:
            freed.append(self.manager.let_go(held.handle, size_bytes))

    def _host_asks(self, held: Held, size_bytes: int) -> None:
        idle = [held.handle for held in self.held if not held.handle.busy and held.handle.is_on(self._device())]
        with self._frees() as freed:
            freed.append(self.manager.give_way(size_bytes, self.host.name))
        assert freed[0] >= size_bytes or not any(handle.held_bytes for handle in idle)

    def _all_unload(self, held: Held, size_bytes: int) -> None:
        self.manager.release_after_oom()

    def _ram_is_short(self, held: Held, size_bytes: int) -> None:
        self.manager.drop_host_copies(size_bytes)

    def _drops_host_copies(self, held: Held, size_bytes: int) -> None:
        held.handle.drop_host_copies()

    @rule(how=st.sampled_from(ALTERING), number=NUMBER, part=NUMBER)
    def alter(self, how: str, number: int, part: int) -> None:
        getattr(self, f"_{how}")(self._one(number), part)

    def _change(self, held: Held, part: int) -> None:
        names = [name for name, _ in held.twin.named_parameters()]
        name = names[part % len(names)]
        with torch.no_grad():
            try:
                held.module.get_parameter(name).mul_(1.0 - part / 8)
            except AbsentWeightError:
                return
            held.twin.get_parameter(name).mul_(1.0 - part / 8)

    def _load_state(self, held: Held, part: int) -> None:
        if not any(tensor.is_meta for tensor in (*held.module.parameters(), *held.module.buffers())):
            state = {name: tensor + 0.125 for name, tensor in held.twin.state_dict().items()}
            held.module.load_state_dict(state)
            held.twin.load_state_dict(state)

    def _grow(self, held: Held, part: int) -> None:
        if not held.handle.busy and len(held.module.layers) < MOST_LAYERS:
            layer = linear().requires_grad_(False)
            for module, added in ((held.module, layer), (held.twin, copy.deepcopy(layer))):
                module.order.append(len(module.layers))
                module.layers.append(added)

    def _reorder(self, held: Held, part: int) -> None:
        for module in {held.module, held.twin}:
            module.order = module.order[1:] + module.order[:1]

    def _mark(self, held: Held, part: int) -> None:
        mark = ("hot", "cold", "normal", "fixed", "gather")[part % 5]
        if mark == "fixed" and held.kind == "reads a weight":
            return  # the only unit left would be divided at its layers, which this kind doesn't bear
        module = held.module.embedding if mark == "gather" else held.module.layers[part % len(held.module.layers)]
        if module is not None:
            self._between_phases(held, lambda: held.handle.mark(module, mark))

    def _replace(self, held: Held, part: int) -> None:
        kind = list(KINDS)[(part + self.seed) % len(KINDS)]
        module = self._new(kind)
        twin = copy.deepcopy(module)
        if self._between_phases(held, lambda: held.handle.replace(module)):
            held.twin, held.kind = twin, kind

    @precondition(lambda self: len(self.held) < MOST_HANDLES)
    @rule(kind=st.sampled_from(list(KINDS)), order=ORDER)
    def add(self, kind: str, order: Kind) -> None:
        self._add(kind, order)

    @precondition(lambda self: len(self.held) < MOST_HANDLES)
    @rule(number=NUMBER, order=ORDER)
    def share(self, number: int, order: Kind) -> None:
        held = self._one(number)
        handle = ModelHandle(f"{held.handle.name}, shared", held.module, order)
        self.held.append(Held(handle, held.twin, held.kind))

    @precondition(lambda self: len(self.held) > 1)
    @rule(number=NUMBER)
    def drop(self, number: int) -> None:
        held = self._one(number)
        if not held.handle.busy:
            self.held.remove(held)

    @precondition(lambda self: not self.open)
    @rule(name=st.sampled_from(DEVICES))
    def move(self, name: str) -> None:
        self.host.name = name

    @rule(size_bytes=SIZE)
    def resize(self, size_bytes: int) -> None:
        device = self._device()
        device.size_bytes = max(size_bytes, device.held_bytes())
        device.peak_bytes = device.held_bytes()

    @rule(
        mode=st.sampled_from(["normal", "normal", "high", "low", "none", "shared"]),
        reserve_bytes=st.sampled_from([0, 0, 100_000]),
        limit_bytes=st.sampled_from([0, 0, 600_000]),
        host_copies=st.sampled_from(["on", "off", "auto"]),
        oom_retry=st.booleans(),
        side_streams=st.integers(0, 2),
    )
    def set_policy(self, **changes: object) -> None:
        self.policy = replace(self.policy, **changes)  # type: ignore[arg-type]

    # what must hold

    @invariant()
    def books_are_true(self) -> None:
        Machine.steps += 1
        for device in self._simulated():
            on_it = [each.handle for each in self.held if each.handle.device_name == device.name]
            assert device.held_bytes() == sum(handle.held_bytes for handle in on_it), "the books differ"
            assert device.free_bytes() >= 0
            assert device.peak_bytes <= device.size_bytes
        for held in self.held:
            assert len(held.handle._users) == sum(held in phase.held for phase in self.open)
            assert held.handle.loaded_bytes <= held.handle.size_bytes
            if held.handle.busy:
                assert held.handle.device_name == self.host.name
        assert (current.phase() is None) == (not self.open)
        facts = self.manager.facts(DEVICES)["devices"]
        held_bytes = {device.name: device.held_bytes() for device in self._simulated()}
        assert {fact["name"]: fact["held_bytes"] for fact in facts} == held_bytes

    # helpers

    def _simulated(self) -> list[SimulatedDevice]:
        devices = [self.devices.get(name) for name in DEVICES]
        return [device for device in devices if isinstance(device, SimulatedDevice)]

    def _device(self) -> SimulatedDevice:
        return self._simulated()[DEVICES.index(self.host.name)]

    def _copies(self, device: Device, side_streams: int) -> Copies:
        return LazyCopies() if side_streams else CopiesAtOnce()

    def _new(self, kind: str) -> nn.Module:
        self.seed += 1
        return made(kind, self.seed)

    def _add(self, kind: str, order: Kind) -> None:
        module = self._new(kind)
        handle = ModelHandle(f"{kind} {self.seed}", module, order)
        self.held.append(Held(handle, copy.deepcopy(module), kind))

    def _one(self, number: int) -> Held:
        return self.held[number % len(self.held)]

    def _pick(self, numbers: Sequence[int]) -> list[Held]:
        return list(dict.fromkeys(self._one(number) for number in numbers))

    def _context(self) -> PhaseContext:
        return PhaseContext("Test", self.manager, torch.Generator().manual_seed(0), Callbacks(check=self._check))

    def _check(self) -> None:
        self._count("cancel", Cancelled)
        self._count("interrupt", KeyboardInterrupt)

    def _count(self, what: str, error: type[BaseException]) -> None:
        if what in self.left:
            self.left[what] -= 1
            if not self.left[what]:
                self.fired = True
                raise error("simulated")

    @contextmanager
    def _armed(self, fault: Fault, held: Sequence[Held] = (), *, may_fail: bool = False) -> Iterator[None]:
        """Within the block the n-th allocation or check fails, once. Only errors that a request may end with pass.

        held: what the block places; may_fail: whether memory runs out in it anyway.
        """
        self.fired = False
        self.left = dict([fault]) if fault else {}
        must_fit = not may_fail and self._must_fit([each.handle for each in held])
        conflict = any(
            other is not each and (other.handle.busy or other in held)
            for each in held
            for other in self._on_module(each.module)
        )
        try:
            yield
            assert not conflict, "two handles on one module are in use"
        except (Cancelled, KeyboardInterrupt):
            assert self.fired
        except NotEnoughMemory:
            assert self.fired or conflict or not must_fit
        except RuntimeError as error:
            if not conflict or "share weights" not in str(error):
                raise
        finally:
            self.left = {}

    def _on_module(self, module: nn.Module) -> list[Held]:
        return [held for held in self.held if held.module is module]

    def _must_fit(self, handles: Sequence[ModelHandle]) -> bool:
        """Whether the least that `handles` work with fits beside what other phases hold, and would be tried."""
        if self.policy.mode in ("high", "shared"):
            return False
        movable = [handle for handle in handles if not handle.busy]
        busy = [each.handle.residence for each in self.held if each.handle.busy]
        streamers = {residence.streamer for residence in busy if residence and residence.streamer}
        used = sum(residence.loaded_bytes for residence in busy if residence)
        used += sum(streamer.size_bytes for streamer in streamers)
        return self._device().size_bytes - used >= self.manager.minimum_bytes(movable)

    def _between_phases(self, held: Held, act: Callable[[], None]) -> bool:
        """Do it if no phase uses the handle; else it must be refused."""
        try:
            act()
        except RuntimeError as error:
            assert held.handle.busy and "between phases" in str(error)
            return False
        assert not held.handle.busy
        return True

    @contextmanager
    def _frees(self) -> Iterator[list[int]]:
        """What the block says that it freed is what the devices have more of."""
        freed: list[int] = []
        before = sum(device.held_bytes() for device in self._simulated())
        yield freed
        assert before - sum(device.held_bytes() for device in self._simulated()) == sum(freed)
