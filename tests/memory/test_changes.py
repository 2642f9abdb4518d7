"""Weights that change, are exchanged or interrupted: between phases, inside them, on and off the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mizuoto_runtime.memory.handle import ModelHandle
from tests.memory.test_manager import Rig
from tests.memory.test_threads import in_threads
from tests.memory.tiny import FIXED, SIZE, UNIT, WIDTH, Tiny, component, linear, made, output


class Interrupted(nn.Module):
    """A layer that is interrupted in its forward as often as asked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self.times = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.layer(x)
        if self.times:
            self.times -= 1
            raise KeyboardInterrupt
        return mixed


@pytest.mark.parametrize("index", range(3))
def test_trap_17_an_interrupt_in_a_kernel_leaves_the_gates_and_the_next_call_is_exact(index: int) -> None:
    module = Tiny([Interrupted() for _ in range(3)]).eval().requires_grad_(False)
    expected = output(module)
    handle = ModelHandle("h", module, "sequence")
    rig = Rig(handle.minimum_bytes(1) + UNIT)
    for _ in range(3):
        module.layers[index].times = 1
        with pytest.raises(KeyboardInterrupt), rig.context().use([handle], 0):
            output(module)
        assert handle.residence is not None
        gates = handle.residence.gates().values()
        assert all(getattr(gate, "depth", 0) == 0 for gate in gates)
        with rig.context().use([handle], 0):
            assert torch.equal(output(module), expected)
            in_threads(lambda: assert_equal(output(module), expected))


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found, expected)


def test_trap_18_weights_are_replaced_between_phases_only() -> None:
    rig, handle, other = Rig(2 * SIZE), component(), made("plain", 7)
    with rig.context().use([handle], 0):
        with pytest.raises(RuntimeError, match="'plain 1' is in use; replace its weights between phases"):
            handle.replace(other)
        assert torch.equal(output(handle.module), output(made("plain", 1)))
    handle.replace(other)
    with rig.context().use([handle], 0):
        assert handle.module is other
        assert torch.equal(output(handle.module), output(made("plain", 7)))
        assert rig.device.held_bytes() == SIZE


@pytest.mark.parametrize("how", ["off the device", "replaced", "given way"])
@pytest.mark.parametrize("size_bytes", [3 * SIZE, SIZE])
def test_trap_18_a_layer_added_later_moves_with_the_others(how: str, size_bytes: int) -> None:
    rig, handle = Rig(size_bytes), component()
    with rig.context().use([handle], 0):
        pass
    if how == "off the device":
        handle.unload()
        handle.replace(handle.module)
    handle.module.layers.append(linear().requires_grad_(False))
    handle.module.order = [0, 1, 2, 3, 4]
    if how == "replaced":
        handle.replace(handle.module)
    elif how == "given way":
        handle.partially_unload(UNIT)
    with rig.context().use([handle], 0):
        found = output(handle.module)
        assert handle.size_bytes == SIZE + UNIT
        assert handle.whole is (size_bytes > SIZE)
    handle.replace(handle.module)
    assert torch.equal(output(handle.module), found)


def test_trap_19_a_copy_that_is_still_in_its_slot_is_not_used_after_a_change() -> None:
    rig, handle, twin = Rig(FIXED + UNIT), component(), made("plain", 1)
    rig.device.strict = False
    handle.module.order = twin.order = [0]
    with rig.context().use([handle], 0):
        for _ in range(2):
            assert torch.equal(output(handle.module), output(twin))
            for module in (handle.module, twin):
                with torch.no_grad():
                    module.layers[0].weight.mul_(0.5)
        assert torch.equal(output(handle.module), output(twin))
        assert handle.streamed_bytes == 3 * UNIT


@pytest.mark.parametrize("placed", ["whole", "partial", "off the device", "never"])
def test_trap_19_what_torch_does_not_count_is_seen_after_replace(placed: str) -> None:
    rig, handle, twin = Rig(SIZE - (placed == "partial")), component(), made("plain", 1)
    rig.device.strict = False
    if placed != "never":
        with rig.context().use([handle], 0):
            output(handle.module)
    if placed == "off the device":
        handle.unload()
    for module in (handle.module, twin):
        for layer in module.layers:
            layer.weight.data.mul_(0.5)
            layer.weight.data = layer.weight.data + 0.25
            layer.bias.data += 1.0
    handle.replace(handle.module)
    assert torch.equal(output(handle.module), output(twin))
    for size_bytes in (SIZE, FIXED + UNIT):
        with Rig(size_bytes).context().use([handle], 0):
            assert torch.equal(output(handle.module), output(twin))


@pytest.mark.parametrize("convert", [lambda module: module.half().float(), lambda module: module.double().float()])
def test_trap_19_weights_that_moved_away_from_where_they_were_packed_are_packed_anew(
    convert: Callable[[nn.Module], nn.Module],
) -> None:
    rig, handle = Rig(FIXED + UNIT), component()
    rig.device.strict = False
    with rig.context().use([handle], 0):
        output(handle.module)
    handle.unload()
    expected = output(convert(made("plain", 1)))
    convert(handle.module)
    for size_bytes in (FIXED + UNIT, SIZE):
        with Rig(size_bytes).context().use([handle], 0):
            assert torch.equal(output(handle.module), expected)


@pytest.mark.parametrize("size_bytes", [SIZE, SIZE - UNIT])
@pytest.mark.parametrize("host_copies", ["on", "off"])
def test_trap_19_what_is_merged_or_loaded_into_placed_weights_stays(size_bytes: int, host_copies: str) -> None:
    rig, handle, twin = Rig(size_bytes, host_copies=host_copies), component(), made("plain", 1)
    rig.device.strict = False
    with rig.context().use([handle], 0):
        for module in (handle.module, twin):
            with torch.no_grad():
                for layer in module.layers:
                    layer.weight += 0.5
                    layer.bias.copy_(torch.ones(WIDTH))
        assert torch.equal(output(handle.module), output(twin))
    handle.unload()
    assert torch.equal(output(handle.module), output(twin))
    with rig.context().use([handle], 0):
        state = made("plain", 8).state_dict()
        handle.module.load_state_dict(state)
        assert torch.equal(output(handle.module), output(made("plain", 8)))
    handle.unload()
    assert all(torch.equal(tensor, state[name]) for name, tensor in handle.module.state_dict().items())


EXCHANGES: dict[str, Callable[[nn.Module], object]] = {
    "half": lambda module: module.half(),
    "to": lambda module: module.to(torch.float64),
    "a layer's half": lambda module: module.layers[3].half(),
    "assigned state": lambda module: module.load_state_dict(made("plain", 2).state_dict(), assign=True),
    "another parameter": lambda module: setattr(module.layers[3], "weight", nn.Parameter(torch.zeros(WIDTH, WIDTH))),
}


@pytest.mark.parametrize("how", EXCHANGES)
def test_trap_19_a_streamed_model_is_not_converted_or_exchanged_by_halves(how: str) -> None:
    rig, handle = Rig(FIXED + 2 * UNIT), component()
    rig.device.strict = False
    with rig.context().use([handle], 0):
        with pytest.raises(RuntimeError, match=r"are being streamed.*handle\.replace"):
            EXCHANGES[how](handle.module)
        assert torch.equal(output(handle.module), output(made("plain", 1)))
    handle.unload()
    assert {parameter.dtype for parameter in handle.module.parameters()} == {torch.float32}
    EXCHANGES[how](handle.module)
    changed = output(handle.module.float())
    with rig.context().use([handle], 0):
        assert torch.equal(output(handle.module), changed)


@pytest.mark.parametrize("host_copies", ["on", "off"])
def test_buffers_come_back_from_the_device_also_if_torch_counted_no_change(host_copies: str) -> None:
    rig, handle = Rig(1 << 30, host_copies=host_copies), component("counting")
    with rig.context().use([handle], 0):
        for layer in handle.module.layers:
            layer.calls.data += 5.0
    handle.unload()
    handle.replace(handle.module)
    assert [float(layer.calls) for layer in handle.module.layers] == [5.0] * 3
