"""Which components may be captured in a CUDA graph, and what its replays count (S8)."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.locks import Locks, NoLocks, SimulatedLocks
from mizuoto_runtime.memory.pinning import Pins
from mizuoto_runtime.types import Kind
from tests.memory.modules import WIDTH, Stack, linear
from tests.memory.placed import place_within


@pytest.mark.parametrize(
    ("kind", "locks", "share", "graphable"),
    [
        ("sequence", SimulatedLocks(), 0.0, True),
        ("sequence", SimulatedLocks("copied"), 0.5, True),
        ("sequence", NoLocks("tests"), 0.5, False),
        ("oneshot", SimulatedLocks(), 0.5, False),
        ("oneshot", NoLocks("tests"), 1.0, True),
    ],
)
def test_only_whole_handles_and_sequences_in_locked_ram_are_graphable(
    kind: Kind, locks: Locks, share: float, graphable: bool
) -> None:
    handle = ModelHandle("h", Stack([linear() for _ in range(4)]).eval().requires_grad_(False), kind)
    least = handle.minimum_bytes(1)
    budget = round(least + share * (handle.size_bytes - least))
    assert not handle.graphable
    place_within(budget, SimulatedDevice("sim", budget, strict=True), handle, pins=Pins(locks, lambda: 1 << 30))
    assert handle.graphable is graphable


def test_a_replay_counts_each_streamed_unit_once_and_forgets_what_the_slots_held() -> None:
    handle = ModelHandle("h", Stack([linear() for _ in range(4)]).eval().requires_grad_(False), "sequence")
    budget = handle.minimum_bytes(1) + handle.costs()[0].size_bytes
    place_within(budget, SimulatedDevice("sim", budget, strict=True), handle)
    x = torch.ones(1, 3, WIDTH)
    expected = handle.module(x)
    copied = handle.streamed_bytes
    handle.replayed()
    assert handle.streamed_bytes == 2 * copied == 6 * handle.costs()[0].size_bytes
    assert torch.equal(handle.module(x), expected)
    assert handle.streamed_bytes == 3 * copied, "nothing was still in a slot"
