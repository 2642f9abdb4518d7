"""Streamed and resident weights give the same samples, and no more than the budget is held."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.memory.absent import AbsentWeightError
from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from tests.memory.modules import WIDTH, Stack, kinds, linear
from tests.memory.placed import place_within

KINDS = dict(kinds())


def made(kind: str) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    module = KINDS[kind]()
    with torch.inference_mode(kind == "inference tensors"), torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return module.eval().requires_grad_(False) if kind != "inference tensors" else module.eval()


def inputs() -> torch.Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def outputs(module: nn.Module) -> list[torch.Tensor]:
    return [module(inputs()) for _ in range(2)]


def budget_of(handle: ModelHandle, share: float) -> int:
    least = handle.minimum_bytes(1)
    return round(least + share * (handle.size_bytes - least))


def placed(handle: ModelHandle, share: float, *, strict: bool) -> SimulatedDevice:
    budget = budget_of(handle, share)
    device = SimulatedDevice("sim", budget, strict=strict)
    place_within(budget, device, handle)
    return device


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_module_gives_the_same(kind: str, share: float, strict: bool) -> None:
    reference = made(kind)
    expected = outputs(reference)
    module = made(kind)
    handle = ModelHandle("h", module, "sequence")
    device = placed(handle, share, strict=strict)
    assert all(torch.equal(*pair) for pair in zip(expected, outputs(module), strict=True))
    assert device.peak_bytes <= budget_of(handle, share)
    assert device.held_bytes() == handle.held_bytes
    assert handle.whole is (share == 1.0)
    handle.unload()
    assert device.held_bytes() == 0
    placed(handle, 1.0 - share, strict=False)
    handle.unload()
    state = reference.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


def test_the_bytes_copied_are_those_that_are_not_resident() -> None:
    module = made("plain")
    handle = ModelHandle("h", module, "sequence")
    for share in (0.0, 0.25, 0.5, 0.75, 0.95):
        device = placed(handle, share, strict=True)
        for times in (1, 2):
            with torch.no_grad():
                module(inputs())
            assert handle.streamed_bytes == times * (handle.size_bytes - handle.loaded_bytes)
        handle.unload()
        assert device.held_bytes() == 0


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_layers_stream(kind: str) -> None:
    module = made(kind)
    handle = ModelHandle("h", module, "sequence")
    recurrent = sum(weight.nbytes for layer in module.layers for weight in layer.rnn.parameters())
    assert handle.size_bytes - handle.fixed_bytes > recurrent


def test_a_unit_that_runs_twice_in_a_row_is_copied_once() -> None:
    module = made("twice and out of order")
    handle = ModelHandle("h", module, "sequence")
    placed(handle, 0.0, strict=True)
    with torch.no_grad():
        module(inputs())
    sizes = {unit.name: unit.size_bytes for unit in handle.costs()}
    assert handle.streamed_bytes == sum(sizes[f"layers.{index}"] for index in (2, 0, 3, 1, 0))


def test_a_whole_handle_has_no_gates() -> None:
    module = made("plain")
    placed(ModelHandle("h", module, "sequence"), 1.0, strict=False)
    plain = {Stack, nn.ModuleList, nn.Sequential, nn.Linear, nn.GELU, nn.LayerNorm}
    assert {type(part) for part in module.modules()} == plain


@pytest.mark.parametrize("kind", ["plain", "attention", "weight_norm", "gru"])
def test_a_partly_loaded_model_can_be_read_copied_and_pickled(kind: str) -> None:
    expected = made(kind)
    state = expected.state_dict()
    module = made(kind)
    handle = ModelHandle("h", module, "sequence")
    placed(handle, 0.5, strict=False)
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    assert [name for name, _ in module.named_parameters()] == [name for name, _ in expected.named_parameters()]
    others = [copy.deepcopy(module)]
    if kind != "weight_norm":  # torch itself can't pickle parametrised modules
        others.append(pickle.loads(pickle.dumps(module)))  # noqa: S301 - our own bytes
    for other in others:
        names = [type(part).__name__ for part in expected.modules()]  # a parametrised module has a class of its own
        assert [type(part).__name__ for part in other.modules()] == names
        assert torch.equal(outputs(other)[0], outputs(expected)[0])


def test_converting_a_streamed_module_is_refused() -> None:
    module = made("plain")
    handle = ModelHandle("h", module, "sequence")
    placed(handle, 0.0, strict=False)
    with pytest.raises(RuntimeError, match="are being streamed"):
        module.half()
    del handle
    assert module.half().scale.dtype == torch.float16, "what is dropped lets go of its modules"


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_weights_that_are_changed_in_place_stay_changed(share: float) -> None:
    module = made("plain")
    handle = ModelHandle("h", module, "sequence")
    placed(handle, share, strict=False)
    for layer in module.layers:
        layer[0].weight.mul_(2)
    changed = outputs(module)
    handle.unload()
    assert torch.equal(outputs(module)[0], changed[0])
    placed(handle, 0.25, strict=False)
    assert torch.equal(outputs(module)[0], changed[0])


def test_a_component_outside_its_phase_is_an_error_on_a_strict_device() -> None:
    module = made("plain")
    handle = ModelHandle("h", module, "sequence")
    placed(handle, 0.5, strict=True)
    with pytest.raises(AbsentWeightError, match="mark it as fixed"):
        torch.nn.functional.linear(inputs(), module.layers[3][0].weight)
    handle.unload()
    with pytest.raises(AbsentWeightError, match="outside its phase"):
        module(inputs())


def test_marks_decide_what_stays() -> None:
    module = Stack([linear() for _ in range(6)])
    handle = ModelHandle("h", module, "sequence")
    handle.mark(module.layers[4], "hot")
    handle.mark(module.layers[0], "cold")
    handle.mark(module.layers[5], "fixed")
    placed(handle, 0.01, strict=False)
    assert handle.fixed_bytes > handle.costs()[0].size_bytes
    handle.unload()
    budget = handle.minimum_bytes(1) + handle.costs()[0].size_bytes
    device = SimulatedDevice("sim", budget, strict=False)
    place_within(budget, device, handle)
    assert handle.resident == ("layers.4",)


def test_what_runs_more_often_stays_once_that_is_known() -> None:
    module = Stack([linear() for _ in range(4)], [0, 1] + [2, 3] * 20)
    handle = ModelHandle("h", module.eval().requires_grad_(False), "sequence")
    budget = handle.minimum_bytes(1) + 2 * handle.costs()[0].size_bytes
    device = SimulatedDevice("sim", budget, strict=True)
    place_within(budget, device, handle)
    module(inputs())
    place_within(budget, device, handle)
    assert handle.resident == ("layers.2", "layers.3")
    assert device.peak_bytes <= budget


def test_yielding_with_host_copies_frees_units_from_the_end() -> None:
    module = made("plain")
    handle = ModelHandle("h", module, "sequence")
    device = placed(handle, 1.0, strict=False)
    size = handle.costs()[0].size_bytes
    assert handle.partially_unload(size + 1) == 2 * size
    assert device.held_bytes() == handle.held_bytes == handle.size_bytes - 2 * size
    assert handle.resident == ("layers.0", "layers.1")
    assert handle.partially_unload(1 << 40) == handle.size_bytes - 2 * size
    assert device.held_bytes() == 0


def failing_at(number: int) -> Callable[[int], None]:
    count = 0

    def before(size_bytes: int) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise NotEnoughMemory("simulated")

    return before


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["plain", "changes buffers", "old weight_norm", "tied"])
def test_any_allocation_may_fail_and_the_books_stay_true(kind: str, share: float) -> None:
    expected = outputs(made(kind))[0]
    failed = 0
    for number in range(1, 9):
        module = made(kind)
        handle = ModelHandle("h", module, "sequence")
        budget = budget_of(handle, share)
        device = SimulatedDevice("sim", budget, strict=True)
        device.before_allocation = failing_at(number)
        try:
            place_within(budget, device, handle)
        except NotEnoughMemory:
            failed += 1
            assert device.held_bytes() == handle.held_bytes
            place_within(budget, device, handle)
        assert torch.equal(outputs(module)[0], expected)
        handle.unload()
        assert device.held_bytes() == 0
    assert failed >= 3
