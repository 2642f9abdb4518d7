"""What a unit's calls go through while its component is partial: counted, gathered in RAM, or streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from . import current
from .group import Absent, WeightGroup

if TYPE_CHECKING:
    from .pinning import Pins
    from .streamer import Slot, Streamer


TRACED = 512


class CountedUnit:
    """The gate of a resident unit in a handle of which other units stream: it only counts.

    trace: names of units in the order in which they run, the first `TRACED` of them.
    """

    __slots__ = ("name", "runs", "trace")

    def __init__(self, name: str, trace: list[str]) -> None:
        self.name = name
        self.trace = trace
        self.runs = 0

    def enter(self) -> None:
        self.runs += 1
        if len(self.trace) < TRACED:
            self.trace.append(self.name)

    def leave(self) -> None:
        """Nothing hangs elsewhere."""


class GatheredUnit:
    """Answers for an embedding that isn't resident: looks its rows up in RAM and moves only those."""

    __slots__ = ("count", "group", "host", "runs")

    def __init__(self, group: WeightGroup, absent: Absent, count: Callable[[int], None]) -> None:
        self.group = group
        self.host = group.entries[0].host
        group.hang_host(absent)
        self.count = count
        self.runs = 0

    def __call__(self, ids: Tensor) -> Tensor:
        """Rows of the weight: shape of `ids` + (channels), where `ids` is."""
        current.check()
        self.runs += 1
        rows = functional.embedding(ids.to(self.host.device), self.host).to(ids.device)
        self.count(rows.nbytes)
        return rows


class StreamedUnit:
    """The gate of a unit that isn't resident.

    Entered: its copy is in a slot and hangs in the modules. Left: what hung there before hangs there again. Calls may
    nest; another thread waits meanwhile. ahead: whether it may be copied before it is asked for. count: told of each
    copy's bytes.
    """

    __slots__ = (
        "ahead", "count", "depth", "group", "host", "name", "outside", "runs", "slot", "streamer", "trace", "trained"
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        trace: list[str],
        group: WeightGroup,
        streamer: Streamer,
        absent: Absent,
        count: Callable[[int], None],
        *,
        ahead: bool,
        pins: Pins,
    ) -> None:
        self.name = name
        self.trace = trace
        self.group = group
        self.host = pins.pack(group)
        self.trained = any(entry.host.requires_grad for entry in group.entries)
        group.hang_host(absent)
        self.outside = group.hanging()
        self.streamer = streamer
        self.count = count
        self.ahead = ahead
        self.slot: Slot | None = None
        self.depth = 0
        self.runs = 0

    def enter(self) -> None:
        streamer = self.streamer
        streamer.lock.acquire()
        if self.depth:
            self.depth += 1
            return
        try:
            if self.trained and torch.is_grad_enabled():
                raise RuntimeError(
                    f"{self.group.name} streams, so its weights can't be trained: their gradients would be lost; "
                    "unload the component first, or run it under torch.no_grad()"
                )
            if len(self.trace) < TRACED:
                self.trace.append(self.name)
            places = streamer.ready(self)
        except BaseException:
            streamer.left(self)
            streamer.lock.release()
            raise
        self.depth = 1
        for container, key, tensor in places:
            container[key] = tensor

    def leave(self) -> None:
        self.depth -= 1
        if not self.depth:
            for container, key, tensor in self.outside:
                container[key] = tensor
            self.streamer.left(self)
        self.streamer.lock.release()


UnitGate = StreamedUnit | CountedUnit | GatheredUnit
