"""Weights of unusual kinds, and whoever looks at a model from outside while it is placed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mizuoto_runtime.memory.absent import AbsentWeightError, absent_weight
from mizuoto_runtime.memory.group import moved
from mizuoto_runtime.memory.handle import ModelHandle
from tests.memory.test_manager import Rig
from tests.memory.tiny import (
    FIXED,
    INPUTS,
    SIZE,
    UNIT,
    WIDTH,
    Attention,
    Recurrent,
    Tiny,
    component,
    layers,
    linear,
    made,
    output,
)


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(8, 8, (3, 3, 41), padding=(1, 1, 20))

    def forward(self, x: Tensor) -> Tensor:
        convolved: Tensor = self.convolution(x.reshape(x.shape[0], 8, 1, x.shape[1], 16))
        return convolved.reshape(x.shape)


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(64, WIDTH)
        self.layer = linear()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.bag(torch.arange(6).reshape(2, 3)).mean(0)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = nn.Bilinear(16, WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.pair(x[..., :16].contiguous(), x)
        return mixed


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.cell(x.reshape(-1, WIDTH))
        return hidden.reshape(x.shape)


class Halved(nn.Module):
    """A parametrisation."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


def halved() -> nn.Module:
    layer = linear()
    nn.utils.parametrize.register_parametrization(layer, "weight", Halved())
    return layer


STREAMS: dict[str, Callable[[], nn.Module]] = {
    "packed attention": Attention,
    "recurrent": Recurrent,
    "lstm cell": Cell,
    "3-D convolution": Volume,
    "bilinear": Pair,
    "parametrised": halved,
    "bag beside a layer": Bag,
}


@pytest.mark.parametrize("kind", STREAMS)
def test_trap_20_every_kind_of_layer_streams(kind: str) -> None:
    module = Tiny([STREAMS[kind]() for _ in range(3)]).eval().requires_grad_(False)
    expected = output(module)
    handle = ModelHandle("h", module, "sequence")
    kept = sum(parameter.nbytes for name, parameter in module.named_parameters() if ".bag." in name)
    assert handle.fixed_bytes - kept < FIXED + 1024
    for share in (0.0, 0.5):
        least = handle.minimum_bytes(1)
        rig = Rig(least + int(share * (handle.size_bytes - least)))
        with rig.context().use([handle], 0):
            assert handle.streamed_bytes == 0
            assert torch.equal(output(module), expected)
            assert handle.streamed_bytes == handle.size_bytes - handle.loaded_bytes > 0


class Quantised(Tensor):
    """A tensor of another kind: int8 values with a scale, which becomes floats when it is computed with."""

    values: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, values: Tensor, scale: Tensor) -> Quantised:
        made: Quantised = Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype, device=values.device)
        made.values, made.scale = values, scale
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in (torch.ops.aten.detach.default, torch.ops.aten._to_copy.default):
            mine = args[0]
            return Quantised(func(mine.values), func(mine.scale))
        plain = torch.utils._pytree.tree_map(lambda each: each.floats() if isinstance(each, cls) else each, args)
        return func(*plain, **(kwargs or {}))

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values", "scale"], None

    def floats(self) -> Tensor:
        return self.values.to(self.scale.dtype) * self.scale


def test_trap_20_tensors_of_another_kind_move_with_what_is_inside() -> None:
    module = Tiny(layers(4)).eval().requires_grad_(False)
    for layer in module.layers[:2]:
        values = torch.randint(-127, 127, (WIDTH, WIDTH), dtype=torch.int8)
        layer.weight = nn.Parameter(Quantised(values, torch.tensor(0.01)), requires_grad=False)
    expected = output(module)
    handle = ModelHandle("h", module, "sequence")
    assert handle.fixed_bytes == FIXED + 2 * (WIDTH * WIDTH + 4 + 4 * WIDTH)
    rig = Rig(handle.minimum_bytes(1) + 1)
    for _ in range(2):
        with rig.context().use([handle], 0):
            assert torch.equal(output(module), expected)
            assert isinstance(module.layers[0].weight, Quantised)
            assert rig.device.held_bytes() == handle.held_bytes > handle.fixed_bytes
        handle.unload()
        assert rig.device.held_bytes() == 0


ODD_TENSORS: dict[str, Callable[[], Tensor]] = {
    "conjugate": lambda: torch.randn(9, 5, dtype=torch.complex64).conj(),
    "imaginary part of a conjugate": lambda: torch.randn(9, 5, dtype=torch.complex64).conj().imag,
    "expanded": lambda: torch.arange(5.0).expand(9, 5),
    "every other column": lambda: torch.randn(9, 10)[:, ::2],
    "sparse": lambda: torch.eye(9).to_sparse(),
    "empty": lambda: torch.empty(0, 5),
    "a number": lambda: torch.tensor(3.0),
}


@pytest.mark.parametrize("host_copies", ["on", "off"])
@pytest.mark.parametrize("what", ["buffer", "parameter"])
@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_trap_20_tensors_that_are_more_than_their_bytes_keep_their_numbers(
    kind: str, what: str, host_copies: str
) -> None:
    module = Tiny(layers(2)).eval().requires_grad_(False)
    odd = ODD_TENSORS[kind]()
    if what == "buffer":
        module.register_buffer("odd", odd)
    else:
        module.odd = nn.Parameter(odd, requires_grad=False)
    expected = odd.to_dense().resolve_conj().resolve_neg().clone()
    handle = ModelHandle("h", module, "sequence")
    for size_bytes in (handle.size_bytes, handle.minimum_bytes(1), handle.size_bytes):
        rig = Rig(size_bytes, host_copies=host_copies)
        with rig.context().use([handle], 0):
            assert torch.equal(module.odd.to_dense(), expected)
            assert rig.device.held_bytes() == handle.held_bytes
        handle.unload()
        assert rig.device.held_bytes() == 0
    handle.replace(module)
    assert torch.equal(module.odd.to_dense(), expected)


def test_trap_20_weights_made_in_inference_mode_stream_in_and_out_of_it() -> None:
    with torch.inference_mode():
        module = Tiny(layers(4)).eval()
        expected = output(module)
    handle = ModelHandle("h", module, "sequence")
    rig = Rig(handle.minimum_bytes(1) + UNIT)
    for inference in (True, False):
        with torch.inference_mode(inference), rig.context().use([handle], 0):
            assert torch.equal(output(module), expected)
        with torch.inference_mode(not inference):
            handle.unload()


class Shared(nn.Module):
    """Every layer keeps the same table of positions as a buffer of its own."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.layer = linear()
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.table[: x.shape[1]]


def test_trap_21_a_shared_buffer_is_counted_once_and_stays_one() -> None:
    table = torch.linspace(-1, 1, 64 * WIDTH).reshape(64, WIDTH)
    module = Tiny([Shared(table) for _ in range(4)]).eval().requires_grad_(False)
    expected = output(module)
    handle = ModelHandle("h", module, "sequence")
    assert handle.size_bytes == SIZE + table.nbytes
    rig = Rig(handle.size_bytes - UNIT)
    for _ in range(2):
        with rig.context().use([handle], 0):
            assert torch.equal(output(module), expected)
        handle.unload()
        handle.replace(module)
        assert len({id(layer.table) for layer in module.layers}) == 1
    assert module.layers[0].table is table


@pytest.mark.parametrize("host_copies", ["on", "off"])
@pytest.mark.parametrize("kind", ["tied", "tied embedding"])
def test_trap_21_tied_weights_are_counted_once_and_stay_tied(kind: str, host_copies: str) -> None:
    handle = component(kind)
    module, tied = handle.module, component(kind).module.state_dict(keep_vars=True)
    distinct = sum(each.nbytes for each in {id(each): each for each in tied.values()}.values())
    assert handle.size_bytes - distinct < 64 * len(tied), "but for the alignment"
    for size_bytes in (handle.size_bytes, max(handle.minimum_bytes(1), handle.size_bytes - 1)):
        rig = Rig(size_bytes, host_copies=host_copies)
        with rig.context().use([handle], 0):
            assert torch.equal(output(module), output(made(kind, 1)))
        handle.unload()
        handle.replace(module)
        names = ("layers.1.weight", "layers.2.weight") if kind == "tied" else ("embedding.weight", "head.weight")
        assert len({id(dict(module.named_parameters(remove_duplicate=False))[name]) for name in names}) == 1


@pytest.mark.parametrize("kind", ["plain", "counting", "attention", "recurrent", "tied embedding", "old weight_norm"])
@pytest.mark.parametrize("size", ["whole", "partial"])
def test_trap_22_a_placed_model_gives_its_true_weights_to_whoever_looks(kind: str, size: str) -> None:
    handle, expected = component(kind), made(kind, 1)
    rig = Rig(handle.size_bytes - (size == "partial"))
    rig.device.strict = False
    with rig.context().use([handle], 0):
        assert handle.whole is (size == "whole")
        state = expected.state_dict()
        assert handle.module.state_dict().keys() == state.keys()
        assert all(torch.equal(tensor, state[name]) for name, tensor in handle.module.state_dict().items())
        others = [copy.deepcopy(handle.module), pickle.loads(pickle.dumps(handle.module))]  # noqa: S301 - our own
    for other in others:
        assert [type(part) for part in other.modules()] == [type(part) for part in expected.modules()]
        other.half().float()
        assert torch.equal(output(other), output(copy.deepcopy(expected).half().float()))


def test_trap_22_training_streamed_weights_is_refused_and_works_without_gradients() -> None:
    handle = component()
    handle.module.requires_grad_(True)
    rig = Rig(SIZE - UNIT)
    with rig.context().use([handle], 0):
        with pytest.raises(RuntimeError, match="can't be trained"):
            handle.module(INPUTS)
        assert torch.equal(output(handle.module), output(made("plain", 1)))


def test_trap_22_gradients_pass_through_frozen_streamed_weights() -> None:
    handle, twin = component(), made("plain", 1)
    gradients = []
    with Rig(SIZE - UNIT).context().use([handle], 0):
        for module in (handle.module, twin):
            x = INPUTS.clone().requires_grad_(True)
            module.layers[0](x).sum().backward()
            gradients.append(x.grad)
    assert torch.equal(*gradients)


def test_trap_22_gradients_of_a_whole_handle_survive_leaving() -> None:
    handle = component()
    handle.module.requires_grad_(True)
    rig = Rig(SIZE)
    rig.device.strict = False
    with rig.context().use([handle], 0):
        handle.module(INPUTS).sum().backward()
        gradients = {name: weight.grad.clone() for name, weight in handle.module.named_parameters()}
    handle.unload()
    assert gradients.keys() == dict(handle.module.named_parameters()).keys()
    for name, weight in handle.module.named_parameters():
        assert weight.grad is not None and torch.equal(weight.grad, gradients[name])


USES: dict[str, Callable[[Tensor], object]] = {
    "linear": lambda weight: functional.linear(INPUTS, weight),
    "matmul": lambda weight: INPUTS @ weight,
    "the other way round": lambda weight: weight @ INPUTS[0].t(),
    "conv1d": lambda weight: functional.conv1d(INPUTS.transpose(1, 2), weight[..., None]),
    "embedding": lambda weight: functional.embedding(torch.zeros(2, dtype=torch.long), weight),
    "addition": lambda weight: torch.zeros(WIDTH) + weight,
    "in place": lambda weight: weight.mul_(2),
    "copied into": lambda weight: weight.copy_(torch.zeros(WIDTH, WIDTH)),
    "copied from": lambda weight: torch.zeros(WIDTH, WIDTH).copy_(weight),
    "index": lambda weight: weight[0],
    "assigned to": lambda weight: weight.__setitem__(0, 0.0),
    "data": lambda weight: weight.data,
    "data set": lambda weight: setattr(weight, "data", torch.zeros(WIDTH, WIDTH)),
    "detached": lambda weight: weight.detach().cpu(),
    "numpy": lambda weight: weight.numpy(),
    "list": lambda weight: weight.tolist(),
    "converted": lambda weight: weight.to(torch.float16),
    "cloned": lambda weight: weight.clone(),
    "compared": lambda weight: torch.equal(weight, weight),
    "out": lambda weight: torch.add(INPUTS[0], 1.0, out=weight),
    "stacked": lambda weight: torch.cat([torch.zeros(1, WIDTH), weight]),
    "einsum": lambda weight: torch.einsum("btc,dc->btd", INPUTS, weight),
    "attention": lambda weight: functional.scaled_dot_product_attention(INPUTS, INPUTS, weight[None]),
    "viewed": lambda weight: weight.view(-1),
    "transposed": lambda weight: weight.t(),
    "deep copy": copy.deepcopy,
    "storage": lambda weight: weight.untyped_storage(),
}


@pytest.mark.parametrize("use", USES)
def test_trap_23_a_weight_that_isnt_there_refuses_every_use(use: str) -> None:
    weight = absent_weight(torch.ones(WIDTH, WIDTH))
    with torch.no_grad(), pytest.raises(AbsentWeightError, match="isn't on the device"):
        USES[use](weight)


def test_trap_23_a_weight_that_isnt_there_tells_its_shape() -> None:
    weight = absent_weight(torch.ones(3, 5, dtype=torch.float16))
    assert (weight.shape, weight.dtype, weight.numel(), weight.dim()) == ((3, 5), torch.float16, 15, 2)
    assert isinstance(weight, nn.Parameter) and not weight.requires_grad


@pytest.mark.parametrize("mode", ["none", "normal"])
def test_a_compiled_module_above_streamed_units_runs_and_gives_the_same(mode: str) -> None:
    handle = component("uneven")
    expected = output(handle.module)
    compiled = torch.compile(handle.module, backend="eager")
    rig = Rig(handle.size_bytes - UNIT, mode=mode)
    for _ in range(2):
        with rig.context().use([handle], 0):
            assert not handle.whole
            for _ in range(2):
                assert torch.equal(output(compiled), expected)
        handle.unload()
    with Rig(2 * handle.size_bytes).context().use([handle], 0):
        assert torch.equal(output(compiled), expected), "whole"
    torch.compiler.reset()


def test_a_weight_that_a_device_has_no_kind_for_is_said() -> None:
    with pytest.raises(RuntimeError, match=r"64 bytes in the layout torch\._mkldnn can't go to meta; load the model"):
        moved(torch.ones(4, 4).to_mkldnn(), torch.device("meta"))
