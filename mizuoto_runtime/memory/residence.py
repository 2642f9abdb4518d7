"""One component's weights on one device: which groups lie there, and the gates of the units that don't."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from . import current
from .absent import absent_weight
from .device import Device
from .gates import CountedUnit, GatheredUnit, StreamedUnit, UnitGate
from .group import Absent, Entry, WeightGroup, inner_tensors, moved
from .intercept import answer, guard, intercept, release
from .pinning import Pins
from .streamer import Streamer
from .units import Division, Unit


class Residence:
    """Made when a component comes to a device, gone when it leaves. Every step leaves the books true.

    loaded_bytes: of weights on the device. streamed_bytes: copied to it since the component came. trace: names of the
    units that ran since it was last read, in order.
    """

    def __init__(self, division: Division, device: Device, pins: Pins) -> None:
        self.division = division
        self.device = device
        self.pins = pins
        self.streamer: Streamer | None = None
        self.loaded_bytes = 0
        self.streamed_bytes = 0
        self.opaque_placed = False
        self._opaque_charge: Tensor | None = None
        self._absent: Absent = absent_weight if device.strict else None
        self._placed: list[Unit] = []
        self._gates: dict[str, UnitGate] = {}
        self.trace: list[str] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of the device: the weights there, and the slots if they are in this component's books."""
        streamer = self.streamer
        owns = streamer is not None and streamer.users[0] is self
        return self.loaded_bytes + (streamer.size_bytes if owns and streamer is not None else 0)

    @property
    def resident(self) -> frozenset[str]:
        """Names of the units that are there."""
        return frozenset(unit.name for unit in self._placed)

    def gates(self) -> dict[str, UnitGate]:
        """The gates by unit name; none where every unit is resident."""
        return self._gates

    def place_fixed(self, *, keep_host: bool) -> None:
        """Place what is there whenever the component is."""
        division = self.division
        for group, keep in ((division.fixed, keep_host), (division.buffers, True)):
            if group.placed_block is None:
                self._place(group, keep_host=keep)
        if not self.opaque_placed:
            self._place_opaque(division.opaque)

    def _place_opaque(self, entries: list[Entry]) -> None:
        is_played = bool(entries) and self.device.torch_device.type == "cpu"  # where they stay what they are
        charge = self.device.allocate(opaque_bytes(entries)) if is_played else None
        tensors = [moved(entry.host, self.device.torch_device) for entry in entries]
        for entry, tensor in zip(entries, tensors, strict=True):
            entry.hang(tensor)
        self.opaque_placed = True
        self._opaque_charge = charge
        self.loaded_bytes += opaque_bytes(entries)

    def make_resident(self, unit: Unit, *, keep_host: bool) -> None:
        """Place a unit. Beside units that stream, its runs are counted."""
        if unit.group.placed_block is None:
            self._close(unit)
            self._place(unit.group, keep_host=keep_host)
            self._placed.append(unit)
        if self.streamer is None:
            self._close(unit)
        elif unit.name not in self._gates and not unit.gathers:
            self._open(unit, CountedUnit(unit.name, self.trace), unit.modules[:1])

    def stream(self, unit: Unit, *, ahead: bool) -> None:
        """Let a unit that isn't resident stream through the slots, or its rows be gathered."""
        if unit.name in self._gates:
            return
        if unit.gathers:
            gathered = GatheredUnit(unit.group, self._absent, self._count)
            self._gates[unit.name] = gathered
            guard(self.division.module)
            for module in unit.modules:
                answer(module, gathered)
            return
        assert self.streamer is not None
        gate = StreamedUnit(
            unit.name,
            self.trace,
            unit.group,
            self.streamer,
            self._absent,
            self._count,
            ahead=ahead,
            pins=self.pins,
        )
        self._open(unit, gate, unit.modules)

    def let_go(
        self, keep: frozenset[str] = frozenset(), size_bytes: int = 1 << 62, *, rewritten: bool = False
    ) -> int:
        """Let resident units go that aren't in `keep`, the last placed first, up to at least `size_bytes`."""
        freed = 0
        for unit in reversed(tuple(self._placed)):
            if freed >= size_bytes:
                break
            if unit.name not in keep:
                size = unit.group.leave(self._absent, rewritten=rewritten)
                self._placed.remove(unit)
                self._close(unit)
                self.loaded_bytes -= size
                freed += size
        return freed

    def use(self, streamer: Streamer) -> None:
        """Stream through these slots from now on."""
        self.streamer = streamer
        streamer.users.append(self)

    def drop_host_copies(self) -> int:
        """Keep nothing in RAM of what is resident; returns the bytes of the copies."""
        if self.streamer is not None:
            return 0
        groups = [self.division.fixed, *(unit.group for unit in self._placed)]
        return sum(group.drop_host_copy() for group in groups)

    @property
    def host_copy_bytes(self) -> int:
        """Bytes that `drop_host_copies` would give back."""
        if self.streamer is not None:
            return 0
        groups = [self.division.fixed, *(unit.group for unit in self._placed)]
        return sum(group.size_bytes for group in groups if group.has_host_copy)

    def stop_streaming(self) -> int:
        """Close the gates and leave the slots; returns the bytes given back. What streamed hangs in RAM."""
        for unit in self.division.units:
            self._close(unit)
        streamer, self.streamer = self.streamer, None
        return streamer.leave(self) if streamer is not None else 0

    def leave(self, *, rewritten: bool = False) -> int:
        """Leave the device with everything; returns the bytes given back. rewritten: bring every weight back."""
        freed = self.stop_streaming() + self.let_go(rewritten=rewritten)
        for unit in self.division.units:
            unit.group.hang_host(self._absent)
        for group in (self.division.fixed, self.division.buffers):
            size = group.leave(self._absent, rewritten=rewritten)
            self.loaded_bytes -= size
            freed += size
        if self.opaque_placed:
            for entry in self.division.opaque:
                entry.hang(entry.host)
            freed += opaque_bytes(self.division.opaque)
            self.opaque_placed = False
        self._opaque_charge = None
        self.loaded_bytes = 0
        return freed

    def count_pass(self, recorded: tuple[Mapping[str, int], int] | None = None) -> None:
        """Count a copy of every unit that streams; or runs of units by name, and bytes copied."""
        if recorded is None:
            streamed = [gate for gate in self._gates.values() if isinstance(gate, StreamedUnit)]
            self._count(sum(gate.group.size_bytes for gate in streamed))
            return
        runs, size_bytes = recorded
        for name, each in runs.items():
            self._gates[name].runs += each
        self._count(size_bytes)

    def _place(self, group: WeightGroup, *, keep_host: bool) -> None:
        if keep_host:
            for tensor in group.host_storages():
                self.pins.pin(tensor)
        group.place(self.device, keep_host=keep_host)
        self.loaded_bytes += group.size_bytes

    def _open(self, unit: Unit, gate: StreamedUnit | CountedUnit, modules: list[nn.Module]) -> None:
        self._gates[unit.name] = gate
        guard(self.division.module)
        for module in modules:
            intercept(module, gate)

    def _close(self, unit: Unit) -> None:
        gate = self._gates.pop(unit.name, None)
        if gate is None:
            return
        if isinstance(gate, StreamedUnit):
            gate.streamer.forget([gate])
        for module in unit.modules:
            release(module)
        if not self._gates:
            release(self.division.module)

    def _count(self, size_bytes: int) -> None:
        self.streamed_bytes += size_bytes
        current.streamed(size_bytes)


def opaque_bytes(entries: list[Entry]) -> int:
    """Bytes of tensors of other kinds than torch's own."""
    return sum(inner.nbytes for entry in entries for inner in inner_tensors(entry.host))
