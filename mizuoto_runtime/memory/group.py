"""Weights that move together, laid out in one block: one copy places them, one lets them go.

A tensor hangs in its module in one or more places (`module._parameters[name]`; tied weights in several). What moves is
what hangs there: the host's tensor, or one that lies in a device's block. Modules stay as they are.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .absent import in_ram
from .device import Device

ALIGNMENT_BYTES = 64
Absent = Callable[[Tensor], Tensor] | None
_on_devices: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()


class Place(NamedTuple):
    """Where a tensor hangs: container[key], a module's dictionary of parameters or buffers, or a list of them."""

    container: Any
    key: Any

    def get(self) -> Tensor | None:
        """What hangs there; None where nothing does any more."""
        container = self.container
        tensor: Tensor | None = container.get(self.key) if isinstance(container, dict) else container[self.key]
        return tensor


@dataclass(slots=True)
class Entry:
    """One distinct tensor of a group.

    host: the tensor in RAM. placed: the one on the device, else None. offset_bytes: where it lies in the block.
    """

    name: str
    host: Tensor
    places: list[Place]
    is_parameter: bool
    offset_bytes: int = 0
    placed: Tensor | None = None

    def hang(self, tensor: Tensor) -> None:
        for container, key in self.places:
            container[key] = tensor

    def view(self, block: Tensor) -> Tensor:
        """The entry's tensor inside `block`, with the host's dtype, shape and strides."""
        host = self.host
        flat = block[self.offset_bytes : self.offset_bytes + extent_bytes(host)].view(host.dtype)
        tensor = flat.as_strided(host.shape, host.stride())
        return nn.Parameter(tensor, requires_grad=host.requires_grad) if self.is_parameter else tensor


def extent_bytes(tensor: Tensor) -> int:
    """Bytes from the tensor's first element to its last, both included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor is no more than its bytes, dtype, shape and strides, so that it can lie in a block."""
    bytes_only = tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    return bytes_only and type(tensor.data) is Tensor


def raw_bytes(tensor: Tensor) -> Tensor:
    """The memory of `tensor`, from its first element to its last, as uint8; shares it."""
    size_bytes = extent_bytes(tensor)
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    start = tensor.storage_offset() * tensor.element_size()
    raw: Tensor = whole.set_(tensor.untyped_storage(), start, (size_bytes,))  # type: ignore[call-overload]
    return raw


def _pageable_block(size_bytes: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.empty(size_bytes, dtype=torch.uint8)


class WeightGroup:
    """Distinct tensors that move together.

    size_bytes: the block's size. host_block: all of them in RAM, laid out as on the device; made when first needed.
    """

    def __init__(self, name: str, entries: Iterable[Entry]) -> None:
        self.name = name
        self.entries = list(entries)
        self.host_block: Tensor | None = None
        self.size_bytes = self._lay_out()
        self._placed_version = 0
        self._placed_block: Tensor | None = None

    def _lay_out(self) -> int:
        end = 0
        self._sizes = [extent_bytes(entry.host) for entry in self.entries]
        for entry, size_bytes in zip(self.entries, self._sizes, strict=True):
            entry.offset_bytes = end
            end += -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return end

    @property
    def placed_block(self) -> Tensor | None:
        """The block on the device while the group is resident there."""
        return self._placed_block

    def pack(self, allocate: Callable[[int], Tensor] = _pageable_block) -> Tensor:
        """The host block. Built once, in what `allocate` gives: the weights move into it, and hang from there."""
        if self.host_block is None:
            self.repack(allocate(self.size_bytes))
        assert self.host_block is not None
        return self.host_block

    def repack(self, block: Tensor) -> None:
        """Move the weights into `block`, the host block from then on. Not while the group is on a device."""
        with torch.inference_mode(False), torch.no_grad():
            for entry in self.entries:
                self._move_in(entry, block)
            self.host_block = block

    def _move_in(self, entry: Entry, block: Tensor) -> None:
        before = entry.host
        target = block[entry.offset_bytes : entry.offset_bytes + extent_bytes(before)]
        target.copy_(raw_bytes(before))
        entry.host = entry.view(block)
        entry.hang(entry.host)

    def host_storages(self) -> list[Tensor]:
        """What holds the weights in RAM: the host block, else each tensor; nothing where only shapes are kept."""
        if self.host_block is not None:
            return [self.host_block]
        return [entry.host for entry in self.entries if not entry.host.is_meta]

    @property
    def has_host_copy(self) -> bool:
        """Whether the group is resident and in RAM too."""
        return self._placed_block is not None and any(not entry.host.is_meta for entry in self.entries)

    def drop_host_copy(self) -> int:
        """Keep only the shapes in RAM while the group is resident; returns the bytes given up. Not for buffers."""
        if not self.has_host_copy:
            return 0
        for entry in self.entries:
            entry.host = shape_of(entry.host)
        self.host_block = None
        return self.size_bytes

    def views(self, block: Tensor) -> list[tuple[Any, Any, Tensor]]:
        """(container, key, tensor in `block`) for every place of every entry."""
        return [
            (place.container, place.key, tensor)
            for entry in self.entries
            for tensor in (entry.view(block),)
            for place in entry.places
        ]

    def hanging(self) -> list[tuple[Any, Any, Tensor]]:
        """The same with the tensors that hang in the modules now."""
        return [(*place, place.container[place.key]) for entry in self.entries for place in entry.places]

    def place(self, device: Device, *, keep_host: bool) -> None:
        """Make the group resident on `device`. Whatever fails leaves it where it was.

        keep_host: keep the tensors in RAM, so that leaving needs no transfer; else only their shapes are kept.
        """
        if self._placed_block is not None:
            return
        with torch.inference_mode(False), torch.no_grad():
            block = device.allocate(self.size_bytes)
            placed = [entry.view(block) for entry in self.entries]
            if self.host_block is not None:
                block.copy_(self.host_block, non_blocking=self.host_block.is_pinned())
            else:
                for entry, tensor in zip(self.entries, placed, strict=True):
                    raw_bytes(tensor).copy_(raw_bytes(entry.host))
            hosts = [entry.host if keep_host else shape_of(entry.host) for entry in self.entries]
            for entry, tensor, host in zip(self.entries, placed, hosts, strict=True):
                entry.placed, entry.host = tensor, host
                _on_devices[id(tensor)] = tensor
                entry.hang(tensor)
            if not keep_host:
                self.host_block = None
            self._placed_block = block
            self._placed_version = block._version

    def leave(self, absent: Absent = None, *, rewritten: bool = False) -> int:
        """Let the device's block go; returns its bytes. What was changed there is copied back first.

        absent: makes what hangs in the modules instead of the host's tensors, where a device is strict. rewritten:
        whether something was changed of which torch doesn't know.
        """
        if self._placed_block is None:
            return 0
        size_bytes = self.size_bytes
        with torch.inference_mode(False), torch.no_grad():
            rewritten = rewritten or self._placed_block._version != self._placed_version
            hosts = [self._brought_back(entry, rewritten=rewritten) for entry in self.entries]
            hanging = [host if absent is None or host is None else absent(host) for host in hosts]
        stays = all(host is entry.host for entry, host in zip(self.entries, hosts, strict=True))
        for entry, host, tensor in zip(self.entries, hosts, hanging, strict=True):
            entry.placed = None
            if host is None or tensor is None:
                entry.places.clear()
                continue
            entry.host = host
            entry.hang(tensor)
        self._placed_block = None
        if not stays:
            self.host_block = None
            self.entries = [entry for entry in self.entries if entry.places]
            self.size_bytes = self._lay_out()
        return size_bytes

    def hang_host(self, absent: Absent = None) -> None:
        """Hang the host's tensors in the modules, or what `absent` makes of them."""
        hanging = [entry.host if absent is None else absent(entry.host) for entry in self.entries]
        for entry, tensor in zip(self.entries, hanging, strict=True):
            entry.hang(tensor)

    def restore(self) -> None:
        """Hang weights where their placeholders hang."""
        for entry in self.entries:
            for container, key in entry.places:
                hanging = Place(container, key).get()
                if hanging is not None:
                    container[key] = in_ram(hanging)

    def is_current(self) -> bool:
        """Whether each tensor still hangs where the group knows it, as large as it was, or a placeholder of it.

        Also, that the host block is where they lie: setting a weight's `data` moves it elsewhere.
        """
        return self._is_where_it_was_packed() and all(
            hanging is not None
            and (in_ram(hanging) is entry.host or hanging is entry.placed)
            and extent_bytes(entry.host) == size
            for entry, size in zip(self.entries, self._sizes, strict=True)
            for place in entry.places
            for hanging in (place.get(),)
        )

    def _is_where_it_was_packed(self) -> bool:
        if self.host_block is None:
            return True
        block = self.host_block.untyped_storage().data_ptr()
        return all(entry.host.untyped_storage().data_ptr() == block for entry in self.entries)

    def _brought_back(self, entry: Entry, *, rewritten: bool) -> Tensor | None:
        """The entry's tensor in RAM with what was changed on the device; None if it's no longer there."""
        current = entry.places[0].get()
        placed = entry.placed
        assert placed is not None
        if current is None:
            return None
        untouched = current is placed and current.data_ptr() == placed.data_ptr() and not current.is_meta
        if untouched and not entry.host.is_meta:
            if rewritten or not entry.is_parameter:
                with torch.inference_mode(entry.host.is_inference()):
                    _distinct(entry.host).copy_(_distinct(placed))
            host = entry.host
        else:
            copied = _copy_with_strides(placed) if untouched else current.detach().to("cpu", copy=True)
            host = nn.Parameter(copied, requires_grad=current.requires_grad) if entry.is_parameter else copied
        if placed.grad is not None:
            host.grad = placed.grad.to("cpu")
        return host


def _distinct(tensor: Tensor) -> Tensor:
    """The tensor without the repetitions of an expanded one."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _copy_with_strides(tensor: Tensor) -> Tensor:
    copied = torch.empty(extent_bytes(tensor), dtype=torch.uint8).copy_(raw_bytes(tensor)).view(tensor.dtype)
    return copied.as_strided(tensor.shape, tensor.stride())


def is_placed(tensor: Tensor) -> bool:
    """Whether what hangs in a module lies in a device's block: a handle has placed it."""
    return _on_devices.get(id(tensor)) is tensor


def shape_of(tensor: Tensor) -> Tensor:
    """The tensor's shape, strides and dtype on torch's meta device."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def inner_tensors(tensor: Tensor) -> list[Tensor]:
    """What a tensor of another kind than torch's own consists of, as far as it says so; else itself."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    names = tensor.__tensor_flatten__()[0] if hasattr(tensor, "__tensor_flatten__") else ()
    return [getattr(tensor, name) for name in names] or [tensor]


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of another kind than torch's own on `device`; a parameter stays one.

    RuntimeError for a kind that the device doesn't have, such as a weight that was packed for the CPU.
    """
    try:
        there = tensor.detach().to(device)
    except NotImplementedError as error:
        raise RuntimeError(
            f"a weight of {tensor.nbytes:,} bytes in the layout {tensor.layout} can't go to {device}; load the model "
            "anew, for that device"
        ) from error
    return nn.Parameter(there, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else there
