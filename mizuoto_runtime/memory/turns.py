"""Whose turn it is to place handles: requests wait for the memory that others use (B6), never for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from .current import RunningPhase
from .device import Device
from .handle import ModelHandle
from .room import Room

POLL_SECONDS = 0.05


class Turns:
    """The requests that wait and those that place, of all threads."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._changed = threading.Condition()  # a generator that is collected here ends its phase
        self._placing: dict[int, Device] = {}
        self._held: dict[int, set[ModelHandle]] = {}
        self._begun: dict[int, RunningPhase] = {}

    def take(
        self,
        handles: Sequence[ModelHandle],
        memory_bytes: int,
        device: Device,
        phase: RunningPhase,
        wait_seconds: float,
    ) -> None:
        """`phase` may use `handles` and place them: once what even their minimum needs isn't in use elsewhere.

        Waits at most `wait_seconds`; `give_back` must follow, whatever happens. One phase has its turn at a time on a
        device, so that each sees what the others took. A request that waits inside a phase of its own isn't waited for:
        it may be this one that it waits for.
        """
        deadline = time.monotonic() + wait_seconds
        while not self._admitted(handles, memory_bytes, device, phase, deadline):
            phase.check()

    def give_back(self, phase: RunningPhase) -> None:
        """The handles are placed, or that failed: others may go on."""
        with self._changed:
            self._placing.pop(id(phase), None)
            self._held.pop(id(phase), None)
            self._tell()

    def begun(self, phase: RunningPhase) -> None:
        """`phase` uses its handles from now on, so that others have to wait for them until it has `ended`."""
        with self._changed:
            self._begun[id(phase)] = phase

    def ended(self, phase: RunningPhase) -> None:
        """The phase uses its handles no more, or never did: others may go on."""
        with self._changed:
            self._begun.pop(id(phase), None)
        self.give_back(phase)

    def _tell(self) -> None:
        if self._held:
            self._changed.notify_all()

    def _admitted(
        self,
        handles: Sequence[ModelHandle],
        memory_bytes: int,
        device: Device,
        phase: RunningPhase,
        deadline: float,
    ) -> bool:
        """Whether the waiting is over; if not, after something has changed, or a moment."""
        with self._changed:
            self._held.pop(id(phase), None)
            if time.monotonic() >= deadline:
                return True
            if not self._is_blocked(handles, memory_bytes, device, phase):
                self._placing[id(phase)] = device
                return True
            self._held[id(phase)] = phase.outer.all_handles() if phase.outer is not None else set()
            self._changed.wait(POLL_SECONDS)
            return False

    def _is_blocked(
        self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device, phase: RunningPhase
    ) -> bool:
        if device in tuple(self._placing.values()):
            return True
        others = self._others(phase, device)
        if not others or others <= set[ModelHandle]().union(*self._held.values()):
            return False
        return self._room.is_short(handles, memory_bytes, device, others)

    def _others(self, phase: RunningPhase, device: Device) -> set[ModelHandle]:
        """What other requests use of `device`."""
        mine = phase.all_handles()
        used = {handle for other in tuple(self._begun.values()) for handle in other.handles}
        return {handle for handle in used - mine if handle.held_bytes and handle.is_on(device)}
