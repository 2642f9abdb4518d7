"""Locked RAM: within its budget, once per page, given back exactly once, whatever fails."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mizuoto_runtime.memory.group import WeightGroup
from mizuoto_runtime.memory.locks import (
    CudaLocks,
    LockingFailed,
    Mode,
    NoLocks,
    SimulatedLocks,
    TorchLocks,
    locks_for,
)
from mizuoto_runtime.memory.pinning import PAGE_BYTES, Pins, pin_budget_bytes
from mizuoto_runtime.memory.units import divide
from tests.memory.modules import WIDTH, Stack, linear

ROOT = Path(__file__).parents[2]
MB, GB = 1 << 20, 1 << 30
BLOCK = 2 * MB
SMALL = 192 << 10
SMALL_LOCKED = 256 << 10
CUDA = pytest.mark.skipif(not torch.cuda.is_available() or bool(torch.version.hip), reason="needs an NVIDIA device")


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """Collecting garbage looks at what these tests make, not at all of torch."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Host:
    """An application with a limit of its own."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        if self.used_bytes + size_bytes > self.limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0


class Rig:
    """Pins that lock for a simulated device."""

    def __init__(self, limit_bytes: int, mode: Mode = "in place", host_bytes: int = 1 << 40) -> None:
        self.locks = SimulatedLocks(mode)
        self.host = Host(host_bytes)
        self.limit_bytes = limit_bytes
        self.pins = Pins(self.locks, lambda: self.limit_bytes, self.host)

    @property
    def pinned_bytes(self) -> int:
        """What the books say, which the host's must agree with."""
        pinned = self.pins.stats().pinned_bytes
        assert pinned == self.host.used_bytes
        return pinned


def block(size_bytes: int = BLOCK) -> Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8)


def inputs() -> Tensor:
    return torch.linspace(-1, 1, 2 * 3 * WIDTH).reshape(2, 3, WIDTH)


def group() -> WeightGroup:
    stack = Stack([linear() for _ in range(1)])
    return divide(stack, {}).units[0].group


@pytest.mark.parametrize(
    ("platform", "ram", "budget"),
    [("win32", 64 * GB, 64 * GB * 2 // 5), ("win32", 4 * GB, 4 * GB * 2 // 5), ("linux", 64 * GB, 64 * GB * 9 // 10),
     ("linux", 32 * GB, 28 * GB), ("linux", 8 * GB, 4 * GB), ("linux", 5 * GB, 2 * GB),
     ("darwin", 2 * GB, 2 * GB * 2 // 5)],
)  # fmt: skip
def test_the_automatic_budget(platform: str, ram: int, budget: int) -> None:
    assert pin_budget_bytes(0, ram, platform) == budget


@pytest.mark.parametrize("platform", ["win32", "linux"])
def test_a_budget_that_is_set_counts_as_it_is(platform: str) -> None:
    assert pin_budget_bytes(123, 64 * GB, platform) == 123 * MB


@pytest.mark.parametrize("mode", ["in place", "copied"])
def test_trap_25_a_block_over_budget_leaves_room_for_smaller_ones(mode: Mode) -> None:
    rig = Rig(5 * MB, mode)
    sizes = [4 * MB, 8 * MB, 2 * MB, MB]
    blocks = [rig.pins.allocate(size) for size in sizes]
    assert [rig.pins.holds(made) for made in blocks] == [True, False, False, True]
    assert [made.numel() for made in blocks] == sizes
    assert rig.pinned_bytes == 5 * MB


def test_trap_25_the_bytes_come_back_when_the_memory_goes() -> None:
    rig = Rig(BLOCK)
    held = rig.pins.allocate(BLOCK)
    assert not rig.pins.holds(rig.pins.allocate(BLOCK))
    part = held[5:9]
    del held
    gc.collect()
    assert rig.pinned_bytes == BLOCK
    assert rig.pins.holds(part)
    del part
    gc.collect()
    assert rig.pinned_bytes == 0
    assert rig.locks.registered == {}
    assert rig.pins.holds(rig.pins.allocate(BLOCK))


def test_trap_25_locked_memory_that_torch_keeps_counts_until_it_is_freed() -> None:
    rig = Rig(SMALL_LOCKED)
    held = rig.pins.allocate(SMALL)
    assert rig.pins.holds(held)
    assert rig.pinned_bytes == SMALL_LOCKED
    del held
    gc.collect()
    assert (rig.pinned_bytes, rig.locks.trims) == (SMALL_LOCKED, 0)
    rig.pins.trim()
    rig.pins.trim()
    assert (rig.pinned_bytes, rig.locks.trims) == (0, 1)


def test_memory_that_torch_keeps_makes_way_for_other_blocks() -> None:
    rig = Rig(BLOCK)
    rig.pins.allocate(SMALL)
    gc.collect()
    held = rig.pins.allocate(BLOCK)
    assert rig.pins.holds(held)
    assert rig.pinned_bytes == BLOCK


class Recording(SimulatedLocks):
    """Notes its calls, and whether the memory is still there when it is unregistered."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def wait(self) -> None:
        self.calls.append("wait")

    def unregister(self, address: int) -> None:
        super().unregister(address)
        self.calls.append("unregister")
        maps = Path("/proc/self/maps")
        if maps.exists():
            spans = [line.split()[0].split("-") for line in maps.read_text().splitlines()]
            assert any(int(start, 16) <= address < int(end, 16) for start, end in spans)


@pytest.mark.parametrize("make", [lambda pins: pins.allocate(64 * MB), lambda pins: block(64 * MB)])
def test_the_device_is_waited_for_before_memory_that_is_still_there_is_unlocked(
    make: Callable[[Pins], Tensor],
) -> None:
    locks = Recording()
    pins = Pins(locks, lambda: GB)
    held = nn.Parameter(make(pins)[7:], requires_grad=False)
    assert pins.pin(held)
    assert locks.calls == []
    del held
    gc.collect()
    assert locks.calls == ["wait", "unregister"]


def test_trap_25_nothing_drifts_in_200_rounds() -> None:
    rig = Rig(7 * MB)
    for round_number in range(200):
        held = [rig.pins.allocate(size) for size in (BLOCK, SMALL, 3 * MB, 3 * MB, MB + round_number)]
        cycle: list[object] = [held]
        cycle.append(cycle)
        assert rig.pinned_bytes <= 7 * MB
        assert rig.pinned_bytes >= 5 * MB
        del held, cycle
        gc.collect()
    rig.pins.trim()
    assert rig.pinned_bytes == 0
    assert rig.locks.registered == {}
    assert rig.locks.waits == 200 * 3


def test_views_of_one_storage_are_locked_once() -> None:
    rig = Rig(GB)
    whole = block(BLOCK)
    views = [whole, whole[100:], whole[:200].view(torch.float32), nn.Parameter(whole[64:128], requires_grad=False)]
    assert all(rig.pins.pin(view) for view in views)
    assert len(rig.locks.registered) == 1
    assert BLOCK <= rig.pinned_bytes <= BLOCK + PAGE_BYTES


def test_blocks_begin_with_a_page_of_their_own() -> None:
    rig = Rig(GB)
    blocks = [rig.pins.allocate(MB + number) for number in range(8)]
    assert all(rig.pins.holds(made) for made in blocks)
    assert rig.pinned_bytes == 8 * MB + 7 * PAGE_BYTES
    assert all(made.untyped_storage().nbytes() == made.numel() for made in blocks)


@pytest.mark.parametrize("mode", ["in place", "copied"])
@pytest.mark.parametrize("size", [BLOCK, SMALL])
def test_trap_25_a_failed_lock_leaves_the_budget_true(mode: Mode, size: int) -> None:
    def fail(size_bytes: int) -> None:
        raise LockingFailed("no more locked pages")

    rig = Rig(GB, mode)
    rig.locks.before = fail
    made = rig.pins.allocate(size)
    assert made.numel() == size
    assert not rig.pins.holds(made)
    assert rig.pinned_bytes == 0
    assert rig.pins.stats().reason == "no more locked pages"
    rig.locks.before = None
    assert rig.pins.holds(rig.pins.allocate(size))
    del made
    gc.collect()
    assert rig.locks.waits == (1 if mode == "in place" and size == BLOCK else 0)


def test_an_unexpected_error_leaves_the_budget_true() -> None:
    def interrupt(size_bytes: int) -> None:
        raise KeyboardInterrupt

    for mode in ("in place", "copied"):
        rig = Rig(GB, mode)  # type: ignore[arg-type]
        rig.locks.before = interrupt
        with pytest.raises(KeyboardInterrupt):
            rig.pins.allocate(BLOCK)
        assert rig.pinned_bytes == 0


class Stuck(SimulatedLocks):
    """Never unlocks."""

    def unregister(self, address: int) -> None:
        raise LockingFailed("the driver refuses")


@pytest.mark.skipif(sys.platform == "win32", reason="blocks don't return to the same address")
def test_what_cant_be_unlocked_stays_in_the_books_and_nothing_is_locked_in_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pins = Pins(Stuck(), lambda: GB)
    held = pins.allocate(BLOCK)
    address = held.data_ptr()
    del held
    gc.collect()
    assert pins.stats().pinned_bytes == BLOCK
    assert "stay locked" in caplog.text
    others = [pins.allocate(BLOCK) for _ in range(3)]
    assert address in [other.data_ptr() for other in others]
    assert [pins.holds(other) for other in others] == [other.data_ptr() != address for other in others]
    assert pins.stats().reason == "", "it isn't even tried"


def test_a_device_that_cant_be_waited_for_doesnt_keep_memory_locked(caplog: pytest.LogCaptureFixture) -> None:
    class Failed(SimulatedLocks):
        def wait(self) -> None:
            raise LockingFailed("the device failed")

    locks = Failed()
    pins = Pins(locks, lambda: GB)
    pins.allocate(BLOCK)
    gc.collect()
    assert locks.registered == {}
    assert pins.stats().pinned_bytes == 0
    assert "the device failed" in caplog.text


def test_the_hosts_own_limit_counts() -> None:
    rig = Rig(GB, host_bytes=3 * MB)
    blocks = [rig.pins.allocate(BLOCK) for _ in range(2)]
    small = rig.pins.allocate(MB)
    assert [rig.pins.holds(made) for made in (*blocks, small)] == [True, False, True]
    assert rig.pinned_bytes == 3 * MB


def test_a_host_that_fails_leaves_the_budget_true() -> None:
    class Broken(Host):
        def reserve(self, size_bytes: int) -> bool:
            raise RuntimeError("the host is gone")

    pins = Pins(SimulatedLocks(), lambda: GB, Broken(0))
    with pytest.raises(RuntimeError, match="the host is gone"):
        pins.allocate(BLOCK)
    assert pins.stats().pinned_bytes == 0


def test_a_changed_budget_applies_to_what_is_locked_next() -> None:
    rig = Rig(BLOCK)
    first, second = rig.pins.allocate(BLOCK), rig.pins.allocate(BLOCK)
    assert not rig.pins.holds(second)
    rig.limit_bytes = 2 * BLOCK
    assert rig.pins.pin(second)
    rig.limit_bytes = 0
    assert rig.pins.holds(first)
    assert not rig.pins.pin(block())


def test_only_whole_large_storages_of_ram_are_locked_in_place(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(BLOCK))
    mapped = torch.from_file(str(file), shared=False, size=BLOCK, dtype=torch.uint8)
    rig = Rig(GB)
    assert not rig.pins.pin(mapped), "locking would copy each page of the file"
    assert not rig.pins.pin(block(MB - 1))
    assert not rig.pins.pin(torch.empty(BLOCK, device="meta"))
    assert rig.pins.pin(block(MB))
    assert not Rig(GB, "copied").pins.pin(block())


@pytest.mark.parametrize("device", ["cpu", "mps:0", "xpu:0"])
def test_other_devices_lock_nothing_and_say_why(device: str) -> None:
    locks = locks_for(device)
    pins = Pins(locks, lambda: GB)
    made = pins.allocate(BLOCK)
    stats = pins.stats()
    assert not pins.holds(made)
    assert not pins.pin(made)
    assert (stats.mode, stats.budget_bytes, stats.pinned_bytes) == ("off", 0, 0)
    assert stats.reason == f"{device.split(':')[0]} copies synchronously"


def test_nvidia_locks_in_place_and_rocm_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    assert type(locks_for("cuda:1")) is CudaLocks
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert type(locks_for("cuda:1")) is TorchLocks


@pytest.mark.skipif(torch.cuda.is_available(), reason="this torch can lock RAM")
def test_a_torch_that_cant_lock_leaves_blocks_pageable() -> None:
    pins = Pins(TorchLocks(), lambda: GB)
    made = pins.allocate(BLOCK)
    assert made.numel() == BLOCK
    assert not pins.holds(made)
    assert pins.stats().pinned_bytes == 0
    assert "locked RAM" in pins.stats().reason


@pytest.mark.parametrize("mode", ["in place", "copied", "off"])
@pytest.mark.parametrize("packed_before", [False, True])
def test_a_group_packs_into_locked_memory_with_the_same_weights(mode: Mode, *, packed_before: bool) -> None:
    stack = Stack([linear()])
    expected = stack(inputs())
    units = divide(stack, {}).units
    rig = Rig(GB, mode)
    pins = Pins(NoLocks("off"), lambda: GB) if mode == "off" else rig.pins
    for unit in units:
        if packed_before:
            unit.group.pack()
        made = pins.pack(unit.group)
        assert made is unit.group.host_block
        assert made is pins.pack(unit.group)
        assert pins.holds(made) is (mode != "off")
    assert torch.equal(stack(inputs()), expected)
    hanging = [tensor for unit in units for _, _, tensor in unit.group.hanging()]
    assert all(pins.holds(tensor) is (mode != "off") for tensor in hanging)
    assert rig.pinned_bytes == (0 if mode == "off" else sum(locked_bytes(unit.group, mode) for unit in units))


def locked_bytes(packed: WeightGroup, mode: Mode) -> int:
    assert packed.host_block is not None
    size, start = packed.size_bytes, packed.host_block.data_ptr()
    if mode == "in place" and size >= MB:
        return -(-(start + size) // PAGE_BYTES) * PAGE_BYTES - start // PAGE_BYTES * PAGE_BYTES
    return 1 << (size - 1).bit_length()


def test_a_large_block_is_locked_where_it_lies() -> None:
    rig = Rig(GB)
    packed = group()
    before = packed.pack(lambda size_bytes: block(64 * MB)[:size_bytes])
    weights = [tensor for _, _, tensor in packed.hanging()]
    assert rig.pins.pack(packed) is before
    assert all(now is then for (_, _, now), then in zip(packed.hanging(), weights, strict=True))


def test_a_block_over_budget_stays_where_it_is() -> None:
    for mode in ("in place", "copied"):
        rig = Rig(MB, mode)  # type: ignore[arg-type]
        packed = group()
        before = packed.pack()
        assert rig.pins.pack(packed) is before
        assert rig.pinned_bytes == 0


def test_a_group_that_lets_its_block_go_unlocks_it() -> None:
    rig = Rig(GB)
    packed = group()
    rig.pins.pack(packed)
    assert rig.pinned_bytes
    del packed
    gc.collect()
    rig.pins.trim()
    assert rig.pinned_bytes == 0


def test_inference_mode_makes_no_inference_blocks() -> None:
    with torch.inference_mode():
        made = [Rig(GB).pins.allocate(size) for size in (BLOCK, SMALL)]
        made.append(Pins(NoLocks(""), lambda: 0).allocate(SMALL))
    assert not any(item.is_inference() for item in made[::2])
    made[0].zero_()


def test_several_threads_stay_within_the_budget_and_give_all_back() -> None:
    rig = Rig(9 * MB)
    rig.pins._host = CountingHost()
    shared = [block(BLOCK) for _ in range(3)]
    problems: list[BaseException] = []
    start = threading.Barrier(4)

    def work() -> None:
        try:
            start.wait()
            for number in range(150):
                made = [rig.pins.allocate(size) for size in (BLOCK, SMALL, MB)]
                rig.pins.pin(shared[number % 3])
                stats = rig.pins.stats()
                assert stats.pinned_bytes <= 9 * MB
                del made
                if number % 50 == 0:
                    rig.pins.trim()
                    gc.collect()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert not any(thread.is_alive() for thread in threads)
    shared.clear()
    gc.collect()
    rig.pins.trim()
    assert rig.pins.stats().pinned_bytes == 0
    assert rig.locks.registered == {}
    assert rig.pins._host.balance() == 0


class CountingHost:
    """Notes what is reserved and given back, from any thread."""

    def __init__(self) -> None:
        self.changes: list[int] = []

    def reserve(self, size_bytes: int) -> bool:
        self.changes.append(size_bytes)
        return True

    def give_back(self, size_bytes: int) -> None:
        self.changes.append(-size_bytes)

    def balance(self) -> int:
        return sum(self.changes)


def test_memory_may_be_collected_while_the_books_are_open() -> None:
    rig = Rig(0)
    dropped: list[Tensor] = []

    def limit() -> int:
        dropped.clear()
        gc.collect()
        return 4 * BLOCK

    pins = Pins(rig.locks, limit, rig.host)
    for _ in range(20):
        dropped.extend(pins.allocate(BLOCK) for _ in range(3))
        cycle: list[object] = [pins.allocate(BLOCK)]
        cycle.append(cycle)
    del cycle
    limit()
    assert rig.host.used_bytes == 0
    assert rig.locks.registered == {}


def test_a_process_ends_quietly_with_memory_locked() -> None:
    code = (
        "from mizuoto_runtime.memory.locks import SimulatedLocks\n"
        "from mizuoto_runtime.memory.pinning import Pins\n"
        "class Locks(SimulatedLocks):\n"
        "    def wait(self): print('waited', flush=True)\n"
        "pins = Pins(Locks(), lambda: 1 << 30)\n"
        "held = [pins.allocate(2 << 20), pins.allocate(4096)]\n"
        "gone = pins.allocate(2 << 20); del gone\n"
        "print(pins.stats().pinned_bytes, flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["waited", str((2 << 20) + 4096)]


@CUDA
def test_cuda_registers_in_place_copies_and_unregisters() -> None:
    pins = Pins(CudaLocks("cuda:0"), lambda: GB)
    for _ in range(3):
        held = pins.allocate(64 * MB)
        held.random_()
        assert pins.holds(held) and held.is_pinned()
        copy = held.to("cuda:0", non_blocking=True)
        expected = held.clone()
        del held
        assert torch.equal(copy.cpu(), expected)
        assert pins.stats().pinned_bytes == 0


@CUDA
def test_a_failed_cuda_registration_leaves_no_error_behind() -> None:
    locks = CudaLocks("cuda:0")
    held = block(BLOCK)
    pages = held.data_ptr() // PAGE_BYTES * PAGE_BYTES
    locks.register(pages, MB)
    with pytest.raises(LockingFailed, match="CUDA error"):
        locks.register(pages, MB)
    assert float((torch.ones(4, device="cuda:0") * 2).sum()) == 8.0
    locks.unregister(pages)
    with pytest.raises(LockingFailed, match="CUDA error"):
        locks.unregister(pages)
    assert float((torch.ones(4, device="cuda:0") * 2).sum()) == 8.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
def test_torchs_locked_blocks_are_pinned_and_trimmed() -> None:
    pins = Pins(TorchLocks(), lambda: GB)
    held = pins.allocate(3 * MB)
    assert pins.holds(held) and held.is_pinned()
    assert pins.stats().pinned_bytes == 4 * MB
    del held
    pins.trim()
    assert pins.stats().pinned_bytes == 0
