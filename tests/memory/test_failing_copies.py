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
    weights = component("h").module.state_dict()
    for number in range(1, 1000):
        rig, handle = Rig(size_bytes, host_copies=host_copies), component("h")
        handle.module.load_state_dict(weights)
        expected = run(handle)
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
