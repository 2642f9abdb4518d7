"""RAM as placements see it: which weights keep a copy there, which copies are locked, how much has to stay free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from .locks import Locks, locks_for
from .pinning import PinHost, Pins, pin_budget_bytes
from .policy import VramPolicy
from .ram import Ram, keep_host_copy, ram, ram_reserve_bytes
from .report import PinFacts, RamFacts

MB = 1 << 20


@dataclass
class HostMemory:
    """RAM of this process.

    read: tells how much there is. device: where phases run, for which copies are locked; locks_for: how, by its name.
    """

    policy: Callable[[], VramPolicy]
    device: Callable[[], str]
    pin_host: PinHost | None = None
    read: Callable[[], Ram] = ram
    locks_for: Callable[[str], Locks] = locks_for

    @cached_property
    def total_bytes(self) -> int:
        """All RAM, read once."""
        return self.read().total_bytes

    @cached_property
    def pins(self) -> Pins:
        """What is locked."""
        return Pins(self.locks_for(self.device()), self._pin_limit_bytes, self.pin_host)

    def _pin_limit_bytes(self) -> int:
        return pin_budget_bytes((self.policy().max_pinned_bytes or 0) // MB, self.total_bytes)

    @property
    def reserve_bytes(self) -> int:
        """RAM that stays free for others."""
        set_bytes = self.policy().ram_reserve_bytes
        return ram_reserve_bytes(None, self.total_bytes) if set_bytes is None else set_bytes

    def keeps_copies(self) -> bool:
        """Whether weights that are whole on a device stay in RAM too (H1). They lie there now, so they cost no more."""
        wanted = self.policy().host_copies
        if wanted != "auto":
            return wanted == "on"
        free_bytes = self.read().available_bytes
        return keep_host_copy(
            wanted, free_bytes=free_bytes, reserve_bytes=self.reserve_bytes, size_bytes=0, already_held=True
        )

    def short_bytes(self) -> int:
        """What is missing of the reserve; 0 if nothing is (H5)."""
        return max(0, self.reserve_bytes - self.read().available_bytes)

    def ram_facts(self) -> RamFacts:
        """For reports."""
        now = self.read()
        return RamFacts(total_bytes=now.total_bytes, free_bytes=now.available_bytes, reserve_bytes=self.reserve_bytes)

    def pin_facts(self) -> PinFacts:
        """For reports."""
        stats = self.pins.stats()
        return PinFacts(
            budget_bytes=stats.budget_bytes, held_bytes=stats.pinned_bytes, mode=stats.mode, reason=stats.reason
        )
