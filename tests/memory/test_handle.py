"""Handles: what they count, and what they refuse."""

import pytest
import torch
from torch import nn

from mizuoto_runtime.memory.handle import ModelHandle, tensors_of
from mizuoto_runtime.memory.manager import ModelManager


class Host:
    """A host whose device is torch's `meta`, so that a real move can be seen without a GPU."""

    def __init__(self, device: str, *, shares_device: bool = False) -> None:
        self.name = device
        self.shares_device = shares_device
        self.asked: list[tuple[int, str]] = []

    def device(self) -> str:
        return self.name

    def make_room(self, size_bytes: int, device: str) -> None:
        self.asked.append((size_bytes, device))


def test_shared_weights_count_once() -> None:
    module = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))
    module[1].weight = module[0].weight
    assert len(tensors_of(module)) == 6
    assert ModelHandle("h", module, "oneshot").size_bytes == 8 * 8 * 4 + 4 * 8 * 4 + 8


def test_only_parts_can_be_marked() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    handle = ModelHandle("h", module, "sequence")
    handle.mark(module[0], "hot")
    assert handle.marks[module[0]] == "hot"
    with pytest.raises(ValueError, match="isn't a part of component 'h'"):
        handle.mark(nn.Linear(2, 2), "hot")


def test_a_phase_places_its_handles_whole_after_asking_for_room() -> None:
    host = Host("meta")
    handle = ModelHandle("h", nn.Linear(4, 4), "oneshot")
    manager = ModelManager(host)
    with manager.load([handle], 100) as device:
        assert device == "meta"
        assert handle.busy
        assert handle.module.weight.device.type == "meta"
        assert handle.loaded_bytes_on("meta") == handle.size_bytes
        with pytest.raises(RuntimeError, match="in use"):
            handle.replace(nn.Linear(4, 4))
        handle.unload()
        assert handle.device == "meta"
    assert host.asked == [(handle.size_bytes + 100, "meta")]
    for memory_bytes in (7, 100, 101):
        with manager.load([handle], memory_bytes):
            pass
    assert host.asked[1:] == [(101, "meta")], "room that was made isn't asked for again"


@pytest.mark.parametrize("shares_device", [True, False])
def test_weights_leave_a_shared_device_when_their_phase_is_over(shares_device: bool) -> None:
    handle = ModelHandle("h", nn.Linear(4, 4), "oneshot")
    manager = ModelManager(Host("meta", shares_device=shares_device))
    with manager.load([handle], 0):
        manager.release([handle])
        assert handle.device == "meta", "not while it is in use"
    handle.module = nn.Linear(4, 4, device="cpu")  # what is on torch's meta device can't come back
    manager.release([handle])
    assert handle.device == ("cpu" if shares_device else "meta")


def test_on_the_cpu_nothing_moves_and_nothing_is_asked() -> None:
    host = Host("cpu")
    handle = ModelHandle("h", nn.Linear(4, 4), "oneshot")
    weight = handle.module.weight
    with ModelManager(host).load([handle], 1 << 60):
        assert handle.module.weight is weight
    assert host.asked == []


def test_a_failure_in_the_phase_leaves_the_handle_idle() -> None:
    handle = ModelHandle("h", nn.Linear(4, 4), "oneshot")
    with pytest.raises(KeyError), ModelManager(Host("cpu")).load([handle], 0):
        raise KeyError
    assert not handle.busy


def test_replaced_weights_are_the_ones_in_force() -> None:
    handle = ModelHandle("h", nn.Linear(4, 4), "oneshot")
    other = nn.Linear(8, 8)
    handle.replace(other)
    assert handle.module is other
    assert handle.size_bytes == (64 + 8) * 4
    assert torch.equal(handle.module.weight, other.weight)
