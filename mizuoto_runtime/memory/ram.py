"""RAM: how much there is for this process, what stays free for others, and who gives way when it runs short.

All figures are in bytes. Reading them takes a fraction of a millisecond on Linux, more elsewhere: once per placement,
not once per phase.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, Literal, TypeVar

MB = 1 << 20
GB = 1 << 30
HostCopies = Literal["auto", "on", "off"]
T = TypeVar("T")
C = TypeVar("C")
M = TypeVar("M")


@dataclass(frozen=True)
class Ram:
    """total_bytes: of the machine, or of the container if that has less. available_bytes: to be had without swapping.

    source: where the figures are from.
    """

    total_bytes: int
    available_bytes: int
    source: str


def ram() -> Ram:
    """RAM as it is now. Where nothing tells what is available, all of it is taken to be."""
    if sys.platform == "win32":
        return _windows_ram()
    if sys.platform == "linux":
        return linux_ram()
    if find_spec("psutil") is not None:
        import psutil  # type: ignore[import-untyped]

        memory = psutil.virtual_memory()
        return Ram(memory.total, memory.available, "psutil")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "darwin":
        done = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, check=True, timeout=10)
        return Ram(total, min(total, vm_stat_available(done.stdout)), "vm_stat")
    return Ram(total, total, "sysconf")


def linux_ram(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Ram:
    """What /proc/meminfo says, and at most what the limits of the process's control groups leave, of either version."""
    figures = _figures((proc / "meminfo").read_text(), unit_bytes=1024)
    machine = total = figures["MemTotal"]
    available = figures.get("MemAvailable", figures["MemFree"] + figures.get("Cached", 0))
    source = "/proc/meminfo"
    for folder, files in _groups(proc, cgroups):
        limit = _number(folder / files.limit)
        if limit is not None and limit < machine:
            total, source = min(total, limit), "cgroup"
            available = min(available, max(0, limit - files.used_bytes(folder)))
    return Ram(total, available, source)


def vm_stat_available(text: str) -> int:
    """Bytes that are free or can be freed at once, from what macOS's `vm_stat` prints."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = {name: int(count) for name, count in re.findall(r"^Pages (\w+):\s+(\d+)\.", text, re.MULTILINE)}
    if page is None or "free" not in pages:
        raise OSError(f"vm_stat printed something else than its table: {text[:80]!r}")
    return int(page[1]) * (pages["free"] + pages.get("inactive", 0) + pages.get("speculative", 0))


def _figures(text: str, unit_bytes: int = 1) -> dict[str, int]:
    """Lines of a name and a number."""
    return {name: int(number) * unit_bytes for name, number in re.findall(r"^(\w+):?\s+(\d+)", text, re.MULTILINE)}


@dataclass(frozen=True)
class _Files:
    """The files of a control group's memory; cached: the lines of memory.stat that count its file cache."""

    limit: str
    usage: str
    cached: tuple[str, str]

    def used_bytes(self, folder: Path) -> int:
        """What the group holds. The file cache doesn't count, as in meminfo."""
        stat = _figures(_read(folder / "memory.stat"))
        return (_number(folder / self.usage) or 0) - sum(stat.get(name, 0) for name in self.cached)


VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))
VERSION_2 = _Files("memory.max", "memory.current", ("active_file", "inactive_file"))


def _groups(proc: Path, cgroups: Path) -> Iterator[tuple[Path, _Files]]:
    """The control groups around the process that may limit its memory."""
    for line in _read(proc / "self" / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            for root in (cgroups, cgroups / "unified"):
                yield from ((folder, VERSION_2) for folder in _upwards(root, path))
        elif "memory" in controllers.split(","):
            yield from ((folder, VERSION_1) for folder in _upwards(cgroups / "memory", path))


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The group's folder and those around it. In a container `root` may be the group itself, and the path not exist."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    for length in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:length])


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _windows_ram() -> Ram:
    """GlobalMemoryStatusEx; what can be committed counts too, for without a page file it is less than what is free."""
    if sys.platform != "win32":
        raise OSError("GlobalMemoryStatusEx is Windows's own")
    import ctypes

    class MemoryStatus(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load_percent", ctypes.c_uint32),
            ("total_physical", ctypes.c_uint64),
            ("available_physical", ctypes.c_uint64),
            ("total_commit", ctypes.c_uint64),
            ("available_commit", ctypes.c_uint64),
            ("total_virtual", ctypes.c_uint64),
            ("available_virtual", ctypes.c_uint64),
            ("available_extended", ctypes.c_uint64),
        )

    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise ctypes.WinError()
    available = min(status.available_physical, status.available_commit)
    return Ram(status.total_physical, available, "GlobalMemoryStatusEx")


def ram_reserve_bytes(setting_mb: int | None, total_bytes: int) -> int:
    """RAM that stays free for others (`compute.ram_reserve_mb`); None: the larger of 2 GB and a tenth of RAM."""
    return max(2 * GB, total_bytes // 10) if setting_mb is None else setting_mb * MB


def keep_host_copy(
    wanted: HostCopies, *, free_bytes: int, reserve_bytes: int, size_bytes: int, already_held: bool
) -> bool:
    """Whether a whole handle keeps its weights in RAM too (H1).

    already_held: the copy lies in RAM now, so that what is free is free beside it; else it takes `size_bytes` of that.
    """
    if wanted != "auto":
        return wanted == "on"
    return free_bytes - (0 if already_held else size_bytes) >= reserve_bytes


@dataclass(frozen=True, kw_only=True)
class Candidate(Generic[T]):
    """Something that may leave RAM. size_bytes: what that frees. last_used: on the manager's clock.

    pinned: it belongs to a model that the user keeps (`engines.<id>.pinned_models`).
    """

    item: T
    size_bytes: int
    last_used: int
    busy: bool = False
    pinned: bool = False


@dataclass(frozen=True)
class Relief(Generic[C, M]):
    """What leaves RAM, in this order: host copies, then models. size_bytes: what that frees, maybe too little."""

    copies: tuple[C, ...]
    models: tuple[M, ...]
    size_bytes: int


def relieve_plan(
    short_bytes: int, copies: Iterable[Candidate[C]], models: Iterable[Candidate[M]]
) -> Relief[C, M]:
    """Who gives way when `short_bytes` of RAM are missing (H5).

    Host copies of whole handles go first, then models, each the least recently used first; never a busy or a pinned
    one. A model's `size_bytes` is what it frees beside those of its host copies that are in `copies`.
    """
    chosen_copies, freed = _least_recent(short_bytes, copies)
    chosen_models, freed_by_models = _least_recent(short_bytes - freed, models)
    return Relief(chosen_copies, chosen_models, freed + freed_by_models)


def _least_recent(short_bytes: int, candidates: Iterable[Candidate[T]]) -> tuple[tuple[T, ...], int]:
    free = [item for item in candidates if item.size_bytes > 0 and not item.busy and not item.pinned]
    chosen: list[T] = []
    freed = 0
    for candidate in sorted(free, key=lambda candidate: candidate.last_used):
        if freed >= short_bytes:
            break
        chosen.append(candidate.item)
        freed += candidate.size_bytes
    return tuple(chosen), freed


def peak_rss_bytes() -> int | None:
    """The most RAM that the process has held at once, since it began or `reset_peak_rss`; None where nobody tells."""
    status = _process_status()
    if "VmHWM" in status:
        return status["VmHWM"]
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_rss() -> bool:
    """Begin to measure anew; False where only the whole run's peak can be had."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _process_status() -> Mapping[str, int]:
    return _figures(_read(Path("/proc/self/status")), unit_bytes=1024)
