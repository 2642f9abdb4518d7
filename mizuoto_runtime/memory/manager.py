"""The budget of each device: what a phase's handles may hold, who gives way for them, who waits.

One placement happens at a time. Reports read the handles' books without waiting for it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .copies import Copies, CopiesAhead, CopiesAtOnce
from .current import RunningPhase, running
from .device import Device, DeviceService
from .handle import ModelHandle, Placement
from .host import Host
from .policy import VramPolicy
from .report import ManagerFacts, device_facts, policy_facts

LOG = logging.getLogger(__name__)
POLL_SECONDS = 0.05


class ModelManager:
    """All handles of the process.

    policy: read at each phase, so that a changed setting applies to the next one. before_load: told of the handles
    that a phase needs at once, those around it included, and of its working memory in bytes.
    """

    def __init__(self, host: Host, devices: DeviceService, policy: Callable[[], VramPolicy]) -> None:
        self.host = host
        self.devices = devices
        self.before_load: Callable[[Sequence[ModelHandle], int], None] | None = None
        self._policy = policy
        self._handles: weakref.WeakSet[ModelHandle] = weakref.WeakSet()
        self._placing = threading.RLock()
        self._released = threading.Condition()
        self._clock = 0

    @property
    def device(self) -> Device:
        """Where phases run."""
        return self.devices.get(self.host.device())

    @property
    def policy(self) -> VramPolicy:
        """The policy in force."""
        return self._policy()

    def facts(self, devices: Sequence[str] = ()) -> ManagerFacts:
        """What is known without waiting: the policy, and the device where phases run, then `devices`."""
        return ManagerFacts(
            device=self.host.device(),
            shares_device=self.host.shares_device,
            policy=policy_facts(self._policy()),
            devices=device_facts(self.devices, (self.host.device(), *devices)),
        )

    def minimum_bytes(self, handles: Sequence[ModelHandle]) -> int:
        """The least of a device on which a phase with these handles works (U6)."""
        return sum(handle.minimum_bytes(self._slots(handle)) for handle in handles)

    def loaded_bytes(self, handle: ModelHandle) -> int:
        """Bytes of the handle's weights where phases run; on a plain CPU they are always there."""
        return handle.size_bytes if self.device.plain else handle.loaded_bytes

    def adopt(self, handles: Sequence[ModelHandle]) -> None:
        """Take handles into the books."""
        self._handles.update(handles)

    @contextmanager
    def load(self, handles: Sequence[ModelHandle], memory_bytes: int, phase: RunningPhase) -> Iterator[None]:
        """Keep `handles` on the device, whole or in part, with room for `memory_bytes` beside them.

        On a CPU without simulation nothing moves and nothing is counted (P6). An estimate never refuses; only an
        allocation that really fails is an error, NotEnoughMemory.
        """
        device = self.device
        self.adopt(handles)
        if self.before_load is not None:
            self.before_load(list(phase.all_handles() | set(handles)), memory_bytes)
        for handle in handles:
            handle.enter()
        try:
            if not device.plain:
                self._wait_for_room(handles, memory_bytes, device, phase)
                self._place(handles, memory_bytes, device, phase)
            with running(phase):
                yield
        finally:
            self._clock += 1
            for handle in handles:
                handle.leave(self._clock)
            with self._released:
                self._released.notify_all()

    def release(self, handles: Sequence[ModelHandle]) -> None:
        """A phase with `handles` is over: those that no other phase uses go back to RAM if the device is shared."""
        if self.host.shares_device:
            for handle in handles:
                handle.unload_if_idle()

    def after_oom(self, handles: Sequence[ModelHandle]) -> None:
        """Make room after a failed allocation: everything idle leaves, `handles` may hold half of what they held."""
        device = self.device
        with self._placing:
            for handle in self._idle(device, handles):
                handle.unload()
            for handle in handles:
                handle.cap_bytes = max(handle.held_bytes // 2, handle.minimum_bytes(self._slots(handle)))
                handle.drop_copies()
            device.empty_cache()

    def _place(self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device, phase: RunningPhase) -> None:
        with self._placing:
            phase.check()
            budget = self._budget(handles, memory_bytes, device)
            wanted = sum(handle.size_bytes for handle in handles)
            policy = self._policy()
            if budget < wanted and policy.mode != "none":
                self._make_room(handles, wanted - budget, device)
                budget = self._budget(handles, memory_bytes, device)
            shares = self._shares(handles, budget)
            for handle in sorted(handles, key=lambda handle: handle.held_bytes <= shares[handle]):
                self._place_one(handle, shares[handle], budget, memory_bytes, device, phase)

    def _place_one(
        self,
        handle: ModelHandle,
        share_bytes: int,
        free_bytes: int,
        memory_bytes: int,
        device: Device,
        phase: RunningPhase,
    ) -> None:
        policy = self._policy()
        least = handle.minimum_bytes(self._slots(handle))
        if share_bytes < least:
            LOG.warning(
                "%s needs at least %s bytes on %s, %s are free; trying all the same",
                handle.name, f"{least:,}", device.name, f"{share_bytes:,}",
            )  # fmt: skip
        handle.place(
            Placement(
                device=device,
                budget_bytes=max(share_bytes, least),
                slots=self._slots(handle),
                keep_host=policy.host_copies != "off",
                copies=lambda: self._copies(handle, device),
            )
        )
        if not handle.whole:
            phase.partial[handle.name] = {
                "reason": self._reason(handle, policy),
                "mode": policy.mode,
                "free_mb": _mb(free_bytes),
                "working_mb": _mb(memory_bytes),
                "reserve_mb": _mb(policy.reserve_bytes),
                "loaded_mb": _mb(handle.loaded_bytes),
                "size_mb": _mb(handle.size_bytes),
            }

    def _budget(self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device) -> int:
        """What `handles` may hold together: what is free and what they hold, less working memory and reserve."""
        policy = self._policy()
        free = device.free_bytes()
        if policy.limit_bytes:
            free = min(free, policy.limit_bytes - device.held_bytes())
        held = sum(handle.held_bytes for handle in handles if handle.device_name == device.name)
        return free + held - memory_bytes - policy.reserve_bytes

    def _make_room(self, handles: Sequence[ModelHandle], short_bytes: int, device: Device) -> None:
        """Let idle handles give way, in their order, then the application around (Y1, Y3)."""
        whole = self._policy().mode in ("high", "shared")
        freed = 0
        for handle in self._idle(device, handles):
            if freed >= short_bytes:
                break
            freed += handle.unload() if whole else handle.partially_unload(short_bytes - freed)
        if freed:
            device.empty_cache()
        if freed < short_bytes:
            self.host.make_room(short_bytes - freed, device.name)

    def _idle(self, device: Device, but: Sequence[ModelHandle]) -> list[ModelHandle]:
        """Handles that can give way: partial ones first, then the least recently used."""
        idle = [
            handle
            for handle in self._handles
            if handle not in but and not handle.busy and handle.device_name == device.name and handle.held_bytes
        ]
        return sorted(idle, key=lambda handle: (handle.whole, handle.last_used))

    def _shares(self, handles: Sequence[ModelHandle], budget_bytes: int) -> dict[ModelHandle, int]:
        """Smaller handles whole first, each leaving the others their minimum; the largest takes the rest (Y5)."""
        policy = self._policy()
        least = {handle: handle.minimum_bytes(self._slots(handle)) for handle in handles}
        if policy.mode == "none":
            return least
        if policy.mode in ("high", "shared"):
            return {handle: handle.size_bytes for handle in handles}
        rest, shares = budget_bytes, {}
        ordered = sorted(least, key=lambda handle: handle.size_bytes)
        for index, handle in enumerate(ordered):
            others = sum(least[other] for other in ordered[index + 1 :])
            shares[handle] = max(least[handle], min(handle.size_bytes, rest - others))
            if policy.mode == "low":
                shares[handle] = max(least[handle], min(shares[handle], handle.size_bytes // 2))
            rest -= shares[handle]
        return shares

    def _wait_for_room(
        self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device, phase: RunningPhase
    ) -> None:
        """Wait while another request holds what even the minimum needs (B6), at most `wait_seconds`."""
        policy = self._policy()
        deadline = time.monotonic() + policy.wait_seconds
        mine = phase.all_handles() | set(handles)
        while time.monotonic() < deadline and self._is_short(handles, memory_bytes, device, mine):
            phase.check()
            with self._released:
                self._released.wait(POLL_SECONDS)

    def _is_short(
        self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device, mine: set[ModelHandle]
    ) -> bool:
        others = [handle for handle in self._handles if handle.busy and handle not in mine and handle.held_bytes]
        if not others:
            return False
        whole = self._policy().mode in ("high", "shared")
        need = sum(handle.size_bytes if whole else handle.minimum_bytes(self._slots(handle)) for handle in handles)
        idle = sum(handle.held_bytes for handle in self._idle(device, handles))
        return self._budget(handles, memory_bytes, device) + idle < need

    def _slots(self, handle: ModelHandle) -> int:
        """Copies held at once: one where nothing is copied ahead (S4)."""
        return 1 if handle.kind == "sequence" else self._policy().side_streams + 1

    def _copies(self, handle: ModelHandle, device: Device) -> Copies:
        streams = self._policy().side_streams
        ahead = streams > 0 and handle.kind == "oneshot" and device.torch_device.type == "cuda"
        return CopiesAhead(device.torch_device, streams) if ahead else CopiesAtOnce()

    def _reason(self, handle: ModelHandle, policy: VramPolicy) -> str:
        if policy.mode in ("low", "none"):
            return f"vram_mode {policy.mode}"
        return "capped after it ran out of memory" if handle.cap_bytes is not None else "budget"


def _mb(size_bytes: int) -> float:
    return round(size_bytes / 1_000_000, 3)

