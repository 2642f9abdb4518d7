"""Locked ("pinned") RAM: host copies that a device reads by itself, within a budget.

In place (NVIDIA): a block is locked where it lies. Copied (ROCm): weights move into memory that torch has locked. Other
devices copy synchronously, so nothing is locked. What isn't locked works all the same, slower.
"""

from __future__ import annotations

import logging
import mmap
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .locks import LockingFailed, Locks

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

    from .group import WeightGroup

LOG = logging.getLogger(__name__)
MIN_IN_PLACE_BYTES = 1 << 20
PAGE_BYTES = mmap.PAGESIZE
GB = 1 << 30


def pin_budget_bytes(limit_mb: int, ram_bytes: int, platform: str = sys.platform) -> int:
    """The most RAM to lock, for `compute.max_pinned_mb` and RAM of `ram_bytes` (S5).

    0 stands for 40 % of RAM on Windows, elsewhere for RAM less a tenth or 4 GB, and at least 40 %.
    """
    if limit_mb:
        return limit_mb << 20
    least = ram_bytes * 2 // 5
    return least if platform == "win32" else max(least, min(ram_bytes * 9 // 10, ram_bytes - 4 * GB))


class PinHost(Protocol):
    """The surrounding application's own limit for locked RAM.

    Called from any thread; `give_back` also while garbage is collected, so it must never wait for a lock.
    """

    def reserve(self, size_bytes: int) -> bool:
        """Count `size_bytes` as locked, unless that is too much."""

    def give_back(self, size_bytes: int) -> None:
        """They are locked no more."""


class NoPinHost:
    """No application around the runtime, so no limit but its own."""

    def reserve(self, size_bytes: int) -> bool:
        return True

    def give_back(self, size_bytes: int) -> None:
        """Nobody counts."""


@dataclass(eq=False, slots=True)
class _Pinned:
    """An entry of the books. pages: the addresses that are locked in place, empty for torch's locked memory."""

    size_bytes: int
    pages: range = range(0)

    def overlaps(self, other: _Pinned) -> bool:
        return self.pages.start < other.pages.stop and other.pages.start < self.pages.stop


@dataclass(frozen=True, kw_only=True)
class PinStats:
    """For reports. mode: "in place", "copied" or "off". reason: why it is off, or how locking failed last."""

    mode: str
    reason: str
    budget_bytes: int
    pinned_bytes: int
    blocks: int


class Pins:
    """All locked RAM of the process.

    limit_bytes: read whenever something is to be locked. What is locked belongs to its storage: before the storage's
    memory is freed a finalizer waits for the device and unlocks it, and then the bytes go back to the budget.

    A finalizer runs at any time, also inside the methods here. So it takes no lock, and the books are a set, of which
    the sums are taken: there is no counter that could drift.
    """

    def __init__(self, locks: Locks, limit_bytes: Callable[[], int], host: PinHost | None = None) -> None:
        self._locks = locks
        self._limit_bytes = limit_bytes
        self._host = host or NoPinHost()
        self._lock = threading.RLock()
        self._books: set[_Pinned] = set()
        self._ready: dict[int, _Pinned] = {}
        self._freed: deque[_Pinned] = deque()
        self._own: weakref.WeakSet[UntypedStorage] = weakref.WeakSet()
        self._failure = ""

    def holds(self, tensor: Tensor) -> bool:
        """Whether the memory of `tensor` is locked: then it may be copied without waiting, and read by graphs."""
        return tensor.untyped_storage().data_ptr() in self._ready

    def allocate(self, size_bytes: int) -> Tensor:
        """A host block for streamed weights, one whole storage of uint8; locked if it can be, else pageable."""
        if self._fits_in_place(size_bytes):
            block = _pages(size_bytes)
            self._own.add(block.untyped_storage())
            self.pin(block)
            return block
        locked = self._locked_block(size_bytes)
        return _pageable(size_bytes) if locked is None else locked

    def pack(self, group: WeightGroup) -> Tensor:
        """The group's host block, as `WeightGroup.pack`; locked if it can be.

        One that was built before is locked where it lies, else, if only a block of its own can be, moves into that.
        """
        if group.host_block is None:
            return group.pack(self.allocate)
        if not self.pin(group.host_block) and self._locks.mode != "off":
            block = self.allocate(group.size_bytes)
            if self.holds(block):
                group.repack(block)
        return group.host_block

    def pin(self, tensor: Tensor) -> bool:
        """Lock the whole storage of `tensor` where it lies; whether it is locked then.

        Only memory of torch's allocator or of `allocate`: locking a mapped file would copy each of its pages.
        """
        if self.holds(tensor):
            return True
        storage = tensor.untyped_storage()
        if storage.device.type != "cpu" or not self._fits_in_place(storage.nbytes()):
            return False
        if not storage.resizable() and storage not in self._own:
            return False
        pages = _whole_pages(storage.data_ptr(), storage.nbytes())
        entry = _Pinned(len(pages), pages)
        return self._enter(entry) and self._lock_pages(storage, entry)

    def trim(self) -> None:
        """Free locked memory that torch keeps for its next locked block. Until then it counts as locked."""
        freed = []
        while self._freed:
            freed.append(self._freed.popleft())
        if freed:
            self._locks.trim()
        for entry in freed:
            self._remove(entry)

    def stats(self) -> PinStats:
        """The figures in force."""
        books = self._books.copy()
        return PinStats(
            mode=self._locks.mode,
            reason=self._locks.reason or self._failure,
            budget_bytes=0 if self._locks.mode == "off" else self._limit_bytes(),
            pinned_bytes=sum(entry.size_bytes for entry in books),
            blocks=len(books),
        )

    def _fits_in_place(self, size_bytes: int) -> bool:
        return self._locks.mode == "in place" and size_bytes >= MIN_IN_PLACE_BYTES

    def _lock_pages(self, storage: UntypedStorage, entry: _Pinned) -> bool:
        address = storage.data_ptr()
        locked = False
        try:
            self._locks.register(entry.pages.start, entry.size_bytes)
            locked = True
        except LockingFailed as error:
            self._failed(error)
        finally:
            if not locked:
                self._remove(entry)
        if locked:
            self._ready[address] = entry
            weakref.finalize(storage, self._unlock_pages, address, entry).atexit = False
        return locked

    def _unlock_pages(self, address: int, entry: _Pinned) -> None:
        """Before the memory is freed. Pages that stayed locked would be read in place of what lies there next."""
        self._ready.pop(address, None)
        try:
            self._locks.wait()
        except LockingFailed as error:
            LOG.error("%s; its copies are given up", error)
        try:
            self._locks.unregister(entry.pages.start)
        except LockingFailed as error:
            LOG.error("%s bytes of RAM stay locked, and nothing else is locked in their place: %s",
                      f"{entry.size_bytes:,}", error)  # fmt: skip
            return
        self._remove(entry)

    def _locked_block(self, size_bytes: int) -> Tensor | None:
        """A block of torch's locked memory, of which torch takes a power of two; None if it can't be had."""
        if self._locks.mode == "off" or size_bytes == 0:
            return None
        entry = _Pinned(1 << (size_bytes - 1).bit_length())
        if not self._enter(entry):
            return None
        block = None
        try:
            block = self._locks.allocate(size_bytes)
        except LockingFailed as error:
            self._failed(error)
        finally:
            if block is None:
                self._remove(entry)
        if block is not None:
            address = block.untyped_storage().data_ptr()
            self._ready[address] = entry
            weakref.finalize(block.untyped_storage(), self._forget_block, address, entry).atexit = False
        return block

    def _forget_block(self, address: int, entry: _Pinned) -> None:
        self._ready.pop(address, None)
        self._freed.append(entry)

    def _enter(self, entry: _Pinned) -> bool:
        """Put an entry into the books if the budget and the host have room for it and nothing lies in its place."""
        if not self._add(entry):
            if not self._freed:
                return False
            self.trim()
            if not self._add(entry):
                return False
        granted = False
        try:
            granted = self._host.reserve(entry.size_bytes)
        finally:
            if not granted:
                self._books.discard(entry)
        return granted

    def _add(self, entry: _Pinned) -> bool:
        limit_bytes = self._limit_bytes()
        with self._lock:
            books = self._books.copy()
            if entry.size_bytes + sum(other.size_bytes for other in books) > limit_bytes:
                return False
            if any(entry.overlaps(other) for other in books):
                return False
            self._books.add(entry)
            return True

    def _remove(self, entry: _Pinned) -> None:
        self._books.discard(entry)
        self._host.give_back(entry.size_bytes)

    def _failed(self, error: LockingFailed) -> None:
        if not self._failure:
            LOG.warning("%s; the copy stays pageable, which is slower", error)
        self._failure = str(error)


def _whole_pages(address: int, size_bytes: int) -> range:
    """The addresses of all pages in which the bytes lie."""
    end = address + size_bytes
    return range(address - address % PAGE_BYTES, end + -end % PAGE_BYTES)


def _pages(size_bytes: int) -> Tensor:
    """A pageable block that shares its pages with nothing else, as large blocks on Windows do anyway."""
    import torch

    if sys.platform == "win32":
        return _pageable(size_bytes)
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE)
    with torch.inference_mode(False):
        return torch.frombuffer(memory, dtype=torch.uint8)


def _pageable(size_bytes: int) -> Tensor:
    import torch

    with torch.inference_mode(False):
        return torch.empty(size_bytes, dtype=torch.uint8)
