"""Whose turn it is to place handles: requests wait for the memory that others use (B6), never for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .current import RunningPhase
from .device import Device
from .handle import ModelHandle
from .room import Room

POLL_SECONDS = 0.05


class Turns:
    """The requests that wait and those that place, of all threads."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._placing: dict[int, Device] = {}
        self._held: dict[int, set[ModelHandle]] = {}

    @contextmanager
    def turn(
        self,
        handles: Sequence[ModelHandle],
        memory_bytes: int,
        device: Device,
        phase: RunningPhase,
        wait_seconds: float,
    ) -> Iterator[None]:
        """The block begins to use `handles` and places them: once what even their minimum needs isn't in use elsewhere.

        Waits at most `wait_seconds`. One such block runs at a time on a device, so that each sees what the others took.
        A request that waits inside a phase of its own isn't waited for: it may be this one that it waits for.
        """
        deadline = time.monotonic() + wait_seconds
        try:
            while time.monotonic() < deadline and not self._admit(handles, memory_bytes, device, phase):
                phase.check()
                with self._changed:
                    self._changed.wait(POLL_SECONDS)
            yield
        finally:
            with self._lock:
                self._placing.pop(id(phase), None)
                self._held.pop(id(phase), None)
            self.ended()

    def ended(self) -> None:
        """A phase has ended, or its handles are placed: others may go on."""
        with self._changed:
            self._changed.notify_all()

    def _admit(
        self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device, phase: RunningPhase
    ) -> bool:
        with self._lock:
            self._held.pop(id(phase), None)
            waiting = set[ModelHandle]().union(*self._held.values())
            mine = phase.all_handles() | set(handles)
            blocked = device in self._placing.values()
            if blocked or self._room.is_short(handles, memory_bytes, device, mine, waiting):
                self._held[id(phase)] = phase.outer.all_handles() if phase.outer is not None else set()
                return False
            self._placing[id(phase)] = device
            return True
