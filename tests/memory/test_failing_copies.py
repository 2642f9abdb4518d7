"""A copy or an allocation that fails while weights are placed leaves them where the books say they are."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.errors import NotEnoughMemory
from tests.engines.operations import FailOperation
from tests.memory.test_manager import SIZE, Rig, component, run


@pytest.mark.parametrize("size_bytes", [SIZE, SIZE // 2])
@pytest.mark.parametrize("host_copies", ["on", "off"])
def test_what_fails_while_placing_leaves_the_books_true(size_bytes: int, host_copies: str) -> None:
    original = component("h")
    expected = run(original)
    weights = original.module.state_dict()
    for number in range(1 + (host_copies == "on"), 1000, 2):
        with torch.device("meta"):
            handle = component("h")
        handle.module.load_state_dict(weights, assign=True)
        handle.module.requires_grad_(False)
        rig = Rig(size_bytes, host_copies=host_copies)
        operations = FailOperation(number)
        try:
            with operations, rig.context().use([handle], 0):
                pass
        except (MemoryError, NotEnoughMemory):
            assert operations.failed
        assert rig.device.held_bytes() == handle.held_bytes
        with rig.context().use([handle], 0):
            assert torch.equal(run(handle), expected)
        handle.unload()
        assert rig.device.held_bytes() == 0
        if not operations.failed:
            assert number > 4
            return
    raise AssertionError("the placement never ends")
