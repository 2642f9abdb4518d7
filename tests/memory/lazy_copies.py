"""Copies that run as late as they may, and refuse whatever a device could do in another order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mizuoto_runtime.memory.streamer import Slot

POISON = 255  # not a number in every float format


@dataclass(eq=False)
class Ticket:
    """A copy that was begun."""

    target: Tensor
    source: Tensor
    done: bool = False


class LazyCopies:
    """A double of `CopiesAhead`: a copy into a slot happens when it is waited for; until then the slot holds garbage.

    begun, waited: how many copies were begun ahead, and asked for later.
    """

    ahead = True

    def __init__(self) -> None:
        self.begun = 0
        self.waited = 0
        self._under_way: dict[int, Ticket] = {}
        self._in_use: set[int] = set()

    def now(self, target: Tensor, source: Tensor) -> None:
        key = _key(target)
        assert key not in self._under_way, "a slot is written while an earlier copy into it is under way"
        self._in_use.add(key)
        target.copy_(source)

    def later(self, target: Tensor, source: Tensor, slot: object) -> Ticket:
        assert isinstance(slot, Slot)
        key = _key(target)
        assert key == _key(slot.block)
        assert key not in self._under_way, "two copies into one slot are under way"
        assert key not in self._in_use, "a slot is written while what is computed may still read it"
        with torch.inference_mode(False):
            target.fill_(POISON)
        self.begun += 1
        self._under_way[key] = Ticket(target, source)
        return self._under_way[key]

    def wait(self, ticket: Ticket) -> None:
        key = _key(ticket.target)
        assert self._under_way.pop(key) is ticket
        assert not ticket.done
        ticket.target.copy_(ticket.source)
        ticket.done = True
        self.waited += 1
        self._in_use.add(key)

    def used(self, slot: object) -> None:
        assert isinstance(slot, Slot)
        self._in_use.discard(_key(slot.block))


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
