"""The budget of each device: what a phase's handles may hold, who gives way for them, who waits.

One placement happens at a time. Reports read the handles' books without waiting for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from . import current
from .allotment import Allotment, allot, least_bytes
from .calibration import Calibration
from .component import slots_of
from .copies import copies_for
from .current import RunningPhase
from .device import Device, DeviceService
from .handle import Cap, ModelHandle
from .host import ALL, Host
from .host_memory import HostMemory
from .placing import Placement, place
from .policy import VramPolicy
from .ram import Candidate, relieve_plan
from .report import ManagerFacts, device_facts, policy_facts
from .room import Room
from .turns import Turns
from .working import WorkingMemory
from .workspace import TorchPeaks, WorkingMemoryMeter

LOG = logging.getLogger(__name__)


class ModelManager:
    """All handles of the process.

    policy: read at each phase, so that a changed setting applies to the next one. before_load: told of the handles
    that a phase needs at once, those around it included, and of its working memory in bytes. copies_for: how slots are
    filled, for a device and a number of side streams.
    """

    def __init__(
        self,
        host: Host,
        devices: DeviceService,
        policy: Callable[[], VramPolicy],
        calibration: Calibration | None = None,
        meter: WorkingMemoryMeter | None = None,
    ) -> None:
        self.host = host
        self.devices = devices
        self.before_load: Callable[[Sequence[ModelHandle], int], None] | None = None
        self.copies_for = copies_for
        self.memory = HostMemory(lambda: self.policy, host.device, host.pin_host())
        self.working = WorkingMemory(
            calibration or Calibration(None), TorchPeaks().label, lambda: self.policy.kv_cache, meter
        )
        self._policy = policy
        self.room = Room(host, lambda: self.policy, self.memory)
        self._placing = threading.RLock()
        self._turns = Turns(self.room)
        self._clock = 0
        host.connect(self)

    @property
    def device(self) -> Device:
        """Where phases run."""
        return self.devices.get(self.host.device())

    @property
    def policy(self) -> VramPolicy:
        """The policy in force on the device where phases run."""
        return self._policy()

    def facts(self, devices: Sequence[str] = ()) -> ManagerFacts:
        """What is known without waiting: the policy, and the device where phases run, then `devices`."""
        return ManagerFacts(
            device=self.host.device(),
            shares_device=self.host.reserve_bytes(self.device, 0) is not None,
            policy=policy_facts(self._policy()),
            reserve_bytes=self.room.reserve_bytes(self.device),
            devices=device_facts(self.devices, (self.host.device(), *devices)),
            ram=self.memory.ram_facts(),
            pins=self.memory.pin_facts(),
        )

    def minimum_bytes(self, handles: Sequence[ModelHandle]) -> int:
        """The least of a device on which a phase with these handles works (U6)."""
        return self.room.least_bytes(handles)

    def loaded_bytes(self, handle: ModelHandle) -> int:
        """Bytes of the handle's weights where phases run; on a plain CPU they are always there."""
        return handle.size_bytes if self.device.plain else handle.loaded_bytes

    def adopt(self, handles: Sequence[ModelHandle]) -> None:
        """Take handles into the books."""
        self.room.adopt(handles)

    def begin(self, phase: RunningPhase, memory_bytes: int, device: Device) -> None:
        """Keep the phase's handles on `device`, whole or in part, with room for `memory_bytes` beside them.

        `end` must follow, also if this fails. On a CPU without simulation nothing moves and nothing is counted (P6). An
        estimate never refuses; only an allocation that really fails is an error, NotEnoughMemory.
        """
        handles = phase.handles
        if not device.plain:
            self.host.check_thread()
        self.adopt(handles)
        if self.before_load is not None:
            self.before_load(list(phase.all_handles()), memory_bytes)
        if device.plain:
            self._use(phase)
        else:
            self._begin_on(device, phase, memory_bytes)
        current.begin(phase)

    def end(self, phase: RunningPhase, device: Device) -> None:
        """The phase uses its handles no more: they may yield. What was broken off may be done again."""
        try:
            current.end(phase)
            self._clock += 1
            for handle in phase.handles:
                handle.leave(phase, self._clock)
            if phase.begun and not device.plain:
                self.host.ended(phase.handles, device)
        finally:
            self._turns.ended(phase)

    def _begin_on(self, device: Device, phase: RunningPhase, memory_bytes: int) -> None:
        try:
            self._turns.take(phase.handles, memory_bytes, device, phase, self._policy().wait_seconds)
            self._use(phase)
            self._place(phase.handles, memory_bytes, device, phase)
        finally:
            self._turns.give_back(phase)

    def _use(self, phase: RunningPhase) -> None:
        phase.begun = True
        for handle in phase.handles:
            handle.enter(phase)
        self._turns.begun(phase)

    def give_way(self, size_bytes: int, device: str) -> int:
        """Let idle handles on `device` go, in their order, until `size_bytes` are freed; returns the bytes (Y1, Y3)."""
        place = self.devices.get(device)
        with self._placing, self.working.meter.moving(place):
            return self.room.give_way(size_bytes, place)

    def let_go(self, handle: ModelHandle, size_bytes: int = ALL) -> int:
        """Let at least so much of this handle go, if it holds that, unless a phase uses it; returns the bytes freed."""
        with self._placing, self.working.meter.moving(self.devices.get(handle.device_name)), handle.lock:
            if handle.busy or not handle.held_bytes:
                return 0
            whole = self._policy().mode in ("high", "shared") or size_bytes >= handle.held_bytes
            return handle.unload() if whole else handle.partially_unload(size_bytes)

    def after_oom(self, handles: Sequence[ModelHandle]) -> bool:
        """Make room after a failed allocation: everything idle leaves, `handles` may hold half of what they held (O1).

        Called when their phase has ended. Those that another phase uses stay as they are.

        Returns whether anything is different now, so that trying again makes sense.
        """
        device = self.device
        if device.plain:
            return False
        with self._placing, self.working.meter.moving(device):
            changed = self.room.unload_idle(device, handles) + self.host.free_all(device) > 0
            for handle in handles:
                least = handle.minimum_bytes(1)
                had = max(handle.held_bytes, handle.allotted_bytes)
                if had > least and not handle.busy:
                    handle.cap = Cap(max(had // 2, least))
                    handle.allotment = None
                    changed = True
                handle.drop_copies()
            changed = device.cached_bytes() > 0 or changed
            self.room.empty_cache(device)
        return changed

    def release_after_oom(self) -> None:
        """A job failed for memory: all idle models leave the device (Y6)."""
        device = self.device
        if not device.plain:
            with self._placing, self.working.meter.moving(device):
                self.room.unload_idle(device, ())
                self.room.empty_cache(device)

    def empty_cache(self) -> None:
        """Idle models were let go of: what torch's allocator keeps of them is free for everybody."""
        with self._placing:
            self.room.empty_cache(self.device)

    def drop_host_copies(self, short_bytes: int) -> int:
        """RAM is short: idle whole handles keep no copy there, least recently used first (H5). Returns the bytes."""
        pinned = self._policy().pinned_models
        copies = [
            Candidate(
                item=handle,
                size_bytes=handle.host_copy_bytes,
                last_used=handle.last_used,
                busy=handle.busy,
                pinned=handle.model in pinned,
            )
            for handle in self.room.handles
        ]
        return sum(handle.drop_host_copies() for handle in relieve_plan(short_bytes, copies, ()).copies)

    def _place(self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device, phase: RunningPhase) -> None:
        with self._placing, self.working.meter.moving(device):
            phase.check()
            movable = [handle for handle in handles if not handle.kept]
            budget = self._give_room(movable, memory_bytes, device, phase) if movable else 0
            for handle in handles:
                if not handle.whole:
                    phase.partial[handle.name] = self._explanation(handle, budget, memory_bytes)

    def _give_room(
        self, handles: Sequence[ModelHandle], memory_bytes: int, device: Device, phase: RunningPhase
    ) -> int:
        """Place the handles within their budget, and return that."""
        unplaced = [handle for handle in handles if not handle.placed_on(device)]
        self.room.separate(unplaced)
        for handle in unplaced:
            handle.renew()
        for handle in handles:
            handle.learn()
        wanted = self.room.wanted_bytes(handles)
        budget = self.room.budget_bytes(handles, memory_bytes, device)
        if budget < wanted:
            self.room.make_room(handles, budget, device)
            budget = self.room.budget_bytes(handles, memory_bytes, device)
        if self.host.claim(self._used(handles, phase), memory_bytes, wanted - budget, device):
            budget = self.room.budget_bytes(handles, memory_bytes, device)
        allotment = self._allotment(handles, budget, device)
        if any(handle.allotment is not allotment for handle in handles):
            place(handles, allotment, self._placement(device))
        return budget

    def _placement(self, device: Device) -> Placement:
        side_streams = self._policy().side_streams
        return Placement(
            device, self.memory.keeps_copies, lambda: self.copies_for(device, side_streams), self.memory.pins
        )

    def _allotment(self, handles: Sequence[ModelHandle], budget_bytes: int, device: Device) -> Allotment:
        """What the handles get of the budget; the same as last time where that is still the best."""
        policy = self._policy()
        limits = tuple(handle.limit_bytes(budget_bytes) for handle in handles)
        if policy.mode == "low":
            limits = tuple(min(limit, handle.size_bytes // 2) for limit, handle in zip(limits, handles, strict=True))
        present = handles[0].allotment
        same = all(handle.allotment is present and handle.placed_on(device) for handle in handles)
        if present is not None and same and present.suits(handles, budget_bytes, limits, policy.mode):
            return present
        for slots in range(slots_of(handles, policy.side_streams), 0, -1):
            allotment = allot(handles, budget_bytes, slots, limits, policy.mode)
            if allotment.fits:
                break
        else:
            LOG.warning(
                "%s: at least %s bytes are needed on %s, %s are free; trying all the same",
                ", ".join(handle.name for handle in handles), f"{least_bytes(handles, 1):,}", device.name,
                f"{max(budget_bytes, 0):,}",
            )  # fmt: skip
        return allotment

    def _explanation(self, handle: ModelHandle, budget_bytes: int, memory_bytes: int) -> dict[str, object]:
        """Why a handle is partial, for the output's report (R1)."""
        policy, reserve = self._policy(), self.room.reserve_bytes(self.device, memory_bytes)
        explanation: dict[str, object] = {
            "reason": self._reason(handle, policy),
            "mode": policy.mode,
            "free_mb": _mb(budget_bytes + memory_bytes + reserve),
            "working_mb": _mb(memory_bytes),
            "reserve_mb": _mb(reserve),
            "loaded_mb": _mb(handle.loaded_bytes),
            "size_mb": _mb(handle.size_bytes),
        }
        return explanation | ({"gave_up_for": handle.gave_up_for} if handle.gave_up_for else {})

    @staticmethod
    def _used(handles: Sequence[ModelHandle], phase: RunningPhase) -> list[ModelHandle]:
        """`handles`, then those that the phases around this one hold, which mustn't give way for them."""
        around = phase.all_handles().difference(handles)
        return [*handles, *sorted((handle for handle in around if handle.held_bytes), key=lambda handle: handle.name)]

    def _reason(self, handle: ModelHandle, policy: VramPolicy) -> str:
        if policy.mode in ("low", "none"):
            return f"vram_mode {policy.mode}"
        if handle.cap is not None:
            return "capped after it ran out of memory"
        if handle.gave_up_for:
            return "gave up memory for another"
        return "vram_limit" if self.room.limited(self.device) else "budget"


def _mb(size_bytes: int) -> float:
    return round(size_bytes / 1_000_000, 3)
