"""RAM: what the machine and its containers tell, and who keeps or leaves what when it runs short."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from mizuoto_runtime.memory.ram import (
    Candidate,
    Ram,
    keep_host_copy,
    linux_ram,
    peak_rss_bytes,
    ram,
    ram_reserve_bytes,
    relieve_plan,
    reset_peak_rss,
    vm_stat_available,
)

MB, GB = 1 << 20, 1 << 30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\nCached:  7340032 kB\n"


class Machine:
    """A machine's files under a folder: 16 GB of RAM, 8 GB of it available."""

    def __init__(self, folder: Path, groups: str = "", meminfo: str = MEMINFO) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.write(self.proc / "meminfo", meminfo)
        self.write(self.proc / "self" / "cgroup", groups)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def version_2(self, group: str, limit: str, used: int, cache: int = 0) -> None:
        folder = self.cgroups / group
        self.write(folder / "memory.max", f"{limit}\n")
        self.write(folder / "memory.current", f"{used}\n")
        self.write(folder / "memory.stat", f"anon 7\nactive_file {cache // 2}\ninactive_file {cache // 2}\n")

    def version_1(self, group: str, limit: int, used: int, cache: int = 0) -> None:
        folder = self.cgroups / "memory" / group
        self.write(folder / "memory.limit_in_bytes", f"{limit}\n")
        self.write(folder / "memory.usage_in_bytes", f"{used}\n")
        self.write(folder / "memory.stat", f"total_active_file {cache}\ntotal_inactive_file 0\n")

    def ram(self) -> Ram:
        return linux_ram(self.proc, self.cgroups)


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    assert Machine(tmp_path).ram() == Ram(16 * GB, 8 * GB, "/proc/meminfo")


def test_an_old_kernel_tells_no_available_ram(tmp_path: Path) -> None:
    machine = Machine(tmp_path, meminfo=MEMINFO.replace("MemAvailable", "Other"))
    assert machine.ram().available_bytes == 8 * GB


def test_a_group_of_version_2_limits_and_its_file_cache_is_free(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/user/comfy\n")
    machine.version_2("user/comfy", str(4 * GB), used=3 * GB, cache=GB)
    machine.version_2("user", "max", used=9 * GB)
    assert machine.ram() == Ram(4 * GB, 2 * GB, "cgroup")


def test_a_full_group_around_counts_although_its_limit_is_higher(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/user/comfy\n")
    machine.version_2("user/comfy", str(4 * GB), used=GB)
    machine.version_2("user", str(6 * GB), used=5 * GB + 512 * MB)
    assert machine.ram() == Ram(4 * GB, 512 * MB, "cgroup")


def test_what_the_machine_has_left_counts_inside_a_group_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/\n")
    machine.version_2("", str(12 * GB), used=GB)
    assert machine.ram() == Ram(12 * GB, 8 * GB, "cgroup")


def test_a_container_sees_its_own_group_at_the_root(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "9:name=systemd:/\n4:cpu,memory:/docker/4eac\n")
    machine.version_1("", 2 * GB, used=3 * GB, cache=2 * GB)
    assert machine.ram() == Ram(2 * GB, GB, "cgroup")


def test_a_group_above_its_limit_leaves_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "4:memory:/job\n")
    machine.version_1("job", GB, used=GB + MB)
    assert machine.ram().available_bytes == 0


def test_version_1_writes_no_limit_as_a_huge_number(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "4:memory:/job\n0::/../elsewhere\n")
    machine.version_1("job", 9223372036854771712, used=15 * GB)
    assert machine.ram() == Ram(16 * GB, 8 * GB, "/proc/meminfo")


def test_what_vm_stat_prints() -> None:
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               10000.\n"
        "Pages active:                            300000.\n"
        "Pages inactive:                          200000.\n"
        "Pages speculative:                         1000.\n"
        '"Translation faults":                 123456789.\n'
    )
    assert vm_stat_available(text) == 16384 * 211000
    with pytest.raises(OSError, match="printed something else"):
        vm_stat_available("usage: vm_stat")


def test_this_machine_tells_its_ram() -> None:
    now = ram()
    assert 0 < now.available_bytes <= now.total_bytes
    assert now.total_bytes > 256 * MB


@pytest.mark.skipif(sys.platform == "win32", reason="os.sysconf isn't there")
def test_this_machine_agrees_with_itself() -> None:
    import os

    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert ram().total_bytes <= physical


@pytest.mark.parametrize(
    ("setting_mb", "total", "reserve"),
    [(None, 8 * GB, 2 * GB), (None, 20 * GB, 2 * GB), (None, 64 * GB, 64 * GB // 10), (512, 64 * GB, 512 * MB),
     (0, 64 * GB, 0)],
)  # fmt: skip
def test_trap_28_the_reserve_grows_with_the_machine(setting_mb: int | None, total: int, reserve: int) -> None:
    assert ram_reserve_bytes(setting_mb, total) == reserve


def kept(wanted: str, free: int, size: int, *, held: bool) -> bool:
    return keep_host_copy(wanted, free_bytes=free, reserve_bytes=2 * GB, size_bytes=size, already_held=held)  # type: ignore[arg-type]


def test_trap_13_a_copy_that_is_there_already_isnt_counted_again() -> None:
    assert kept("auto", 16 * GB, 15 * GB, held=True)
    assert not kept("auto", 16 * GB, 15 * GB, held=False)
    assert kept("auto", 16 * GB, 14 * GB, held=False)
    assert not kept("auto", 2 * GB - 1, 0, held=True)


def test_on_and_off_ask_nobody() -> None:
    assert kept("on", 0, GB, held=False)
    assert not kept("off", 64 * GB, 0, held=True)


def candidate(item: str, size: int, last_used: int, **state: bool) -> Candidate[str]:
    return Candidate(item=item, size_bytes=size, last_used=last_used, **state)


COPIES = [candidate("c3", 30, 3), candidate("c1", 10, 1), candidate("c2", 20, 2)]
MODELS = [candidate("m2", 200, 2), candidate("m1", 100, 1)]


@pytest.mark.parametrize(
    ("short", "copies", "models"),
    [(0, (), ()), (-5, (), ()), (1, ("c1",), ()), (10, ("c1",), ()), (11, ("c1", "c2"), ()),
     (60, ("c1", "c2", "c3"), ()), (61, ("c1", "c2", "c3"), ("m1",)), (161, ("c1", "c2", "c3"), ("m1", "m2")),
     (9999, ("c1", "c2", "c3"), ("m1", "m2"))],
)  # fmt: skip
def test_copies_leave_before_models_and_the_least_recent_first(
    short: int, copies: tuple[str, ...], models: tuple[str, ...]
) -> None:
    plan = relieve_plan(short, COPIES, MODELS)
    assert (plan.copies, plan.models) == (copies, models)
    sizes = {item.item: item.size_bytes for item in (*COPIES, *MODELS)}
    assert plan.size_bytes == sum(sizes[name] for name in copies + models)


def test_what_is_pinned_or_busy_or_frees_nothing_stays() -> None:
    copies = [candidate("pinned", 9, 0, pinned=True), candidate("busy", 9, 0, busy=True), candidate("empty", 0, 0)]
    models = [candidate("pinned", 9, 0, pinned=True), candidate("busy", 9, 0, busy=True), candidate("idle", 9, 9)]
    plan = relieve_plan(100, copies, models)
    assert (plan.copies, plan.models, plan.size_bytes) == ((), ("idle",), 9)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets the peak be reset")
def test_the_peak_of_held_ram_is_measured_anew() -> None:
    if not reset_peak_rss():
        pytest.skip("this kernel doesn't let the peak be reset")
    before = peak_rss_bytes()
    with mmap.mmap(-1, 64 * MB) as block:  # pages of its own, where a bytearray may get some that are held already
        for start in range(0, 64 * MB, 4096):
            block[start] = 1
        during = peak_rss_bytes()
    assert reset_peak_rss()
    after = peak_rss_bytes()
    assert before is not None and during is not None and after is not None
    assert during - before > 60 * MB
    assert during - after > 60 * MB
