"""Room on a device: what some handles may hold there, and who gives way for them, in which order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sequence

from .allotment import least_bytes
from .device import Device
from .handle import ModelHandle
from .host import Host
from .host_memory import HostMemory
from .policy import VramPolicy

MOST_RESERVED_BYTES = 1 << 30
APPLICATION = "the application around"


class Room:
    """The handles of the process, and the rules by which they share devices. One placement at a time asks it."""

    def __init__(self, host: Host, policy: Callable[[], VramPolicy], memory: HostMemory) -> None:
        self._handles: weakref.WeakSet[ModelHandle] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._host = host
        self._policy = policy
        self._memory = memory

    def adopt(self, handles: Sequence[ModelHandle]) -> None:
        """Take handles into the books."""
        with self._lock:
            self._handles.update(handles)

    @property
    def handles(self) -> list[ModelHandle]:
        """All that are in the books."""
        with self._lock:
            return list(self._handles)

    def held_bytes(self, device: Device) -> int:
        """What all handles hold of `device`, slots included."""
        return sum(handle.held_bytes for handle in self.handles if handle.is_on(device))

    def least_bytes(self, handles: Sequence[ModelHandle]) -> int:
        """The least of a device on which a phase with these handles works (U6): one copy at a time."""
        return least_bytes(handles, 1)

    def reserve_bytes(self, device: Device, memory_bytes: int = 0) -> int:
        """What stays free on `device` beside `memory_bytes` of working memory.

        As the application or the setting says, else an eighth of the device, 1 GiB at most.
        """
        hosts = self._host.reserve_bytes(device, memory_bytes)
        if hosts is not None:
            return hosts
        set_bytes = self._policy().reserve_bytes
        return min(MOST_RESERVED_BYTES, device.total_bytes() // 8) if set_bytes is None else set_bytes

    def limited(self, device: Device) -> bool:
        """Whether it is `compute.vram_limit_mb` that leaves no more of `device`."""
        limit = self._policy().limit_bytes
        return bool(limit) and limit - device.held_bytes() < self._host.free_bytes(device)

    def budget_bytes(self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device) -> int:
        """What `handles` may hold together: what is free and what they hold, less working memory and reserve."""
        policy = self._policy()
        free = self._host.free_bytes(device)
        if policy.limit_bytes:
            free = min(free, policy.limit_bytes - device.held_bytes())
        return free + self._given_back_bytes(handles, device) - memory_bytes - self.reserve_bytes(device, memory_bytes)

    @staticmethod
    def _given_back_bytes(handles: Sequence[ModelHandle], device: Device) -> int:
        """What `device` would have more of without `handles`: not the slots that others stream through too."""
        there = [handle.residence for handle in handles]
        residences = [residence for residence in there if residence is not None and residence.device is device]
        streamers = {residence.streamer for residence in residences if residence.streamer is not None}
        slots = sum(streamer.size_bytes for streamer in streamers if set(streamer.users) <= set(residences))
        return slots + sum(residence.loaded_bytes for residence in residences)

    def wanted_bytes(self, handles: Sequence[ModelHandle]) -> int:
        """What `handles` would hold if there were room enough."""
        mode = self._policy().mode
        if mode == "none":
            return self.least_bytes(handles)
        size_bytes = sum(handle.size_bytes for handle in handles)
        return max(self.least_bytes(handles), size_bytes // 2) if mode == "low" else size_bytes

    def make_room(self, handles: Sequence[ModelHandle], budget_bytes: int, device: Device) -> None:
        """Let idle handles give way, in their order (Y1, Y3)."""
        idle = self.idle(device, handles)
        if not idle:
            return
        whole = self._policy().mode in ("high", "shared")
        short_bytes = self.wanted_bytes(handles) - budget_bytes
        needed = self.least_bytes(handles) - budget_bytes
        pays = whole or self._eviction_pays(handles)
        last_used = max(handle.last_used for handle in handles)
        freed = 0
        for handle in idle:
            wanted = short_bytes if pays or handle.last_used < last_used or not last_used else needed
            if freed < wanted:
                freed += handle.unload() if whole else handle.partially_unload(wanted - freed)
                handle.gave_up_for = ", ".join(other.name for other in handles)
        if freed:
            self.empty_cache(device)

    def give_way(self, size_bytes: int, device: Device) -> int:
        """Let idle handles go until `size_bytes` are freed, because the application asks; returns the bytes."""
        whole = self._policy().mode in ("high", "shared")
        freed = 0
        for handle in self.idle(device, ()):
            if freed < size_bytes:
                freed += handle.unload() if whole else handle.partially_unload(size_bytes - freed)
                handle.gave_up_for = APPLICATION
        return freed

    @staticmethod
    def _eviction_pays(handles: Sequence[ModelHandle]) -> bool:
        """Whether `handles` run their units so often that it's cheaper to evict one who'll come back than to stream.

        Evicting moves the same bytes twice a round, once for each side; streaming moves them at each pass.
        """
        return any(handle.kind == "sequence" or (handle.usage.passes or 1) > 2 for handle in handles)

    def idle(self, device: Device, but: Sequence[ModelHandle]) -> list[ModelHandle]:
        """Handles that can give way: partial ones first, pinned models' last, the least recently used before others."""
        pinned = self._policy().pinned_models
        idle = [
            handle
            for handle in self.handles
            if handle not in but and not handle.busy and handle.is_on(device) and handle.held_bytes
        ]
        return sorted(idle, key=lambda handle: (handle.whole, handle.model in pinned, handle.last_used))

    def unload_idle(self, device: Device, but: Sequence[ModelHandle]) -> int:
        return sum(handle.unload() for handle in self.idle(device, but))

    def empty_cache(self, device: Device) -> None:
        device.empty_cache()
        self._memory.pins.trim()

    def is_short(
        self,
        handles: Sequence[ModelHandle],
        memory_bytes: int,
        device: Device,
        others: Collection[ModelHandle],
    ) -> bool:
        """Whether `handles` have to wait for the `others` in use, for room (B6) or for weights that they share."""
        if any(handle.shares(other) for handle in handles for other in others):
            return True
        policy = self._policy()
        whole = policy.mode in ("high", "shared")
        if whole:
            need = sum(handle.size_bytes for handle in handles)
        else:
            need = self.least_bytes(handles)
        movable = [*handles, *self.idle(device, handles)]
        return self.budget_bytes(movable, memory_bytes, device) < need

    def separate(self, handles: Sequence[ModelHandle]) -> None:
        """Bring home the weights that idle handles share with `handles`: a weight hangs in one place at a time."""
        for handle in handles:
            for other in self.handles:
                if other is handle or not handle.shares(other):
                    continue
                if other.busy:
                    raise RuntimeError(
                        f"components {handle.name!r} and {other.name!r} share weights, so they can't be in use at "
                        "once; make them one component"
                    )
                other.come_home()
