"""Page-locked RAM in ComfyUI's books: one budget for both, of which speech takes a share."""

from __future__ import annotations

from collections import deque
from typing import Any

MOST_SHARE = 0.5  # ComfyUI can't take back what others have locked
ENTRY = -1  # no address


class PinBooks:
    """Counts what the runtime locks in ComfyUI's own books.

    books: comfy.model_management, of a version that has them: PINNED_MEMORY (bytes by address), TOTAL_PINNED_MEMORY and
    MAX_PINNED_MEMORY, which is below 0 where nothing may be locked. All of the runtime's bytes are one entry there, so
    that the entries never run out while some are left: older versions set the total to 0 then.

    ComfyUI's books have no lock and belong to its prompt thread. Bytes that garbage collection gives back on any thread
    are therefore only noted, and taken off by the next call of `settle` or `reserve`.
    """

    def __init__(self, books: Any) -> None:
        self._books = books
        self._held_bytes = 0
        self._returned: deque[int] = deque()

    @staticmethod
    def kept_by(books: Any) -> bool:
        """Whether this version has such books."""
        return all(hasattr(books, name) for name in ("PINNED_MEMORY", "TOTAL_PINNED_MEMORY", "MAX_PINNED_MEMORY"))

    def reserve(self, size_bytes: int) -> bool:
        self.settle()
        most_bytes = self._books.MAX_PINNED_MEMORY
        if most_bytes <= 0 or self._held_bytes + size_bytes > MOST_SHARE * most_bytes:
            return False
        make_room = getattr(self._books, "ensure_pin_registerable", None)
        if make_room is not None:
            make_room(size_bytes)
        if self._books.TOTAL_PINNED_MEMORY + size_bytes > most_bytes:
            return False
        self._enter(size_bytes)
        return True

    def give_back(self, size_bytes: int) -> None:
        self._returned.append(size_bytes)

    def settle(self) -> None:
        """Take off what was given back."""
        while self._returned:
            self._enter(-self._returned.popleft())

    def _enter(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._books.TOTAL_PINNED_MEMORY += size_bytes
        if self._held_bytes:
            self._books.PINNED_MEMORY[ENTRY] = self._held_bytes
        else:
            self._books.PINNED_MEMORY.pop(ENTRY, None)
