"""RAM that the process holds and needs no more, pages of mapped weight files above all, given back to the system."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MAPS = Path("/proc/self/maps")
MADV_DONTNEED = 4


def give_back_pages(tensors: Iterable[Tensor]) -> int:
    """Give back the whole pages of tensors that lie in a mapped file, for tensors that nobody needs any more.

    Whoever still looks at them reads the file again: what was written to them since is lost. Returns the bytes; 0 where
    the system can't tell which memory is a file's (only Linux does), as for memory that isn't: there nothing is done.
    """
    if sys.platform != "linux" or not MAPS.exists():
        return 0
    files = _mapped_files(MAPS.read_text(encoding="utf-8", errors="replace"))
    return sum(_give_back(tensor.data_ptr(), tensor.nbytes, files) for tensor in tensors if tensor.is_contiguous())


def converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor`, as read from a file, in `dtype`; if that is a copy, the file's pages are given back."""
    copied = tensor.to(dtype)
    if copied is not tensor:
        give_back_pages([tensor])
    return copied


def give_back_freed() -> None:
    """Give back what was freed, such as copied weights: the C library keeps blocks between others for later.

    Only glibc can; elsewhere nothing is done.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _mapped_files(maps: str) -> list[tuple[int, int]]:
    """Where files are mapped for this process alone: first address, and the one behind the last."""
    found = []
    for line in maps.splitlines():
        addresses, permissions, _, _, inode, *path = line.split(maxsplit=5)
        if inode != "0" and path and path[0].startswith("/") and permissions.endswith("p"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            found.append((start, end))
    return found


def _give_back(address: int, size_bytes: int, files: list[tuple[int, int]]) -> int:
    page = mmap.PAGESIZE
    start, end = -(-address // page) * page, (address + size_bytes) // page * page
    if end <= start or not any(first <= start and end <= last for first, last in files):
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return end - start if madvise(start, end - start, MADV_DONTNEED) == 0 else 0
