"""Graphs that are well-formed files but no voices: refused with a message, whatever is missing or misshapen."""

from __future__ import annotations

import lzma
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mizuoto_runtime.engines.piper.weights import load_voice
from mizuoto_runtime.errors import ModelFileError

GOLDEN = Path(__file__).parents[1] / "golden" / "piper"
FUZZ_ROUNDS = 25
FUZZ_EDITS = 3
SHAPES = ([], [1], [1, 1], [1, 1, 1], [0, 1, 1], [2, 1], [1, 1 << 18, 1], [1 << 18, 1, 1], [1, 1, 1 << 18])
INTEGERS = ([], [0], [-1], [2], [1 << 62], [-(1 << 62)], [1, 1], [0, 0, 0])
Edit = Callable[[onnx.GraphProto], object]


def exported(name: str) -> onnx.ModelProto:
    return onnx.load_from_string(lzma.decompress((GOLDEN / f"{name}.onnx.xz").read_bytes()))


@pytest.fixture(scope="module", params=["x_low", "high_speakers_plain_durations"])
def any_model(request: pytest.FixtureRequest) -> onnx.ModelProto:
    return exported(request.param)


@pytest.fixture(scope="module")
def x_low() -> onnx.ModelProto:
    return exported("x_low")


def load_edited(model: onnx.ModelProto, folder: Path, edit: Edit) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    edit(changed.graph)
    path = folder / "voice.onnx"
    path.write_bytes(changed.SerializeToString())
    shutil.copy(GOLDEN / "x_low.onnx.json", f"{path}.json")
    load_voice(path, cache=False)


def reshape(graph: onnx.GraphProto, name: str, shape: list[int]) -> None:
    """Give the convolution `name` a weight, and a bias to go with it, of ones."""
    node = next(each for each in graph.node if f"{name}.bias" in each.input or f"{name}.weight" in each.input)
    for tensor in graph.initializer:
        if tensor.name in node.input[1:3]:
            dims = shape if tensor.name == node.input[1] else shape[:1]
            tensor.CopyFrom(numpy_helper.from_array(np.ones(dims, dtype=np.float32), tensor.name))


def shorten(graph: onnx.GraphProto, op_type: str, field: str, kept: int) -> None:
    """Leave every operation of a type only the first `kept` of its inputs or outputs."""
    nodes = [node for node in graph.node if node.op_type == op_type]
    assert nodes
    for node in nodes:
        del getattr(node, field)[kept:]


def unfold_scale(graph: onnx.GraphProto) -> None:
    """Compute the scale of the duration flow by an Exp, as some exporters do, but one of nothing."""
    difference = next(node.output[0] for node in graph.node if node.op_type == "Sub" and "dp.flows.0.m" in node.input)
    product = next(node for node in graph.node if node.op_type == "Mul" and difference in node.input)
    index = 1 - list(product.input).index(difference)
    product.input[index] = "scale"
    graph.node.insert(0, onnx.helper.make_node("Exp", [], ["scale"]))


def many_layers(graph: onnx.GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.ones((16, 16, 1), dtype=np.float32), "shared"))
    for layer in range(2, 10_000):
        bias = f"enc_p.encoder.attn_layers.{layer}.conv_q.bias"
        graph.node.append(onnx.helper.make_node("Conv", ["x", "shared", bias], [f"y{layer}"]))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda graph: reshape(graph, "dec.conv_pre", [1, 8, 7]), "generator.channels is 1; 3 stages can't halve it"),
        (lambda graph: reshape(graph, "enc_p.proj", [1, 16, 1]), "latent_channels is 0"),
        (lambda graph: reshape(graph, "enc_p.proj", [6, 16, 1]), "latent_channels is 3; an even number"),
        (lambda graph: reshape(graph, "dec.conv_pre", [16, 8, (1 << 12) + 1]), "generator.kernel_size is 4097"),
        (lambda graph: shorten(graph, "Conv", "input", 1), "no weight|missing"),
        (lambda graph: shorten(graph, "ConvTranspose", "input", 0), "no weight|missing"),
        (lambda graph: shorten(graph, "Sub", "output", 0), "scale of the duration flow 'dp.flows.0' is missing"),
        (unfold_scale, "scale of the duration flow 'dp.flows.0' is no constant"),
        (many_layers, "more than 64 convolutions"),
    ],
)
def test_graphs_that_lack_something_are_refused(
    x_low: onnx.ModelProto, tmp_path: Path, edit: Edit, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        load_edited(x_low, tmp_path, edit)
    assert str(tmp_path) in str(caught.value)


def drop_a_part(graph: onnx.GraphProto, dice: random.Random) -> None:
    parts = getattr(dice.choice(graph.node), dice.choice(["input", "output", "attribute"]))
    if parts:
        del parts[dice.randrange(len(parts)) :]


def blank_a_name(graph: onnx.GraphProto, dice: random.Random) -> None:
    names = getattr(dice.choice(graph.node), dice.choice(["input", "output"]))
    if names:
        names[dice.randrange(len(names))] = dice.choice(["", "input", dice.choice(graph.initializer).name])


def change_an_attribute(graph: onnx.GraphProto, dice: random.Random) -> None:
    attributes = [each for node in graph.node if node.op_type.startswith("Conv") for each in node.attribute]
    attribute = dice.choice(attributes)
    if dice.random() < 0.2:
        attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, dice.choice([1, 0.5, "text"])))
    else:
        attribute.ints[:] = dice.choice(INTEGERS)


def change_a_shape(graph: onnx.GraphProto, dice: random.Random) -> None:
    tensor = dice.choice([each for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT])
    shape = list(tensor.dims)
    kind = dice.randrange(3)
    if kind == 0:
        dice.shuffle(shape)
        tensor.dims[:] = shape
        return
    if kind == 1 and shape:
        shape[dice.randrange(len(shape))] = dice.choice([0, 1, 2, 3, 4097])
    else:
        shape = list(dice.choice(SHAPES))
    if np.prod(shape) < 1 << 20:
        tensor.CopyFrom(numpy_helper.from_array(np.zeros(shape, dtype=np.float32), tensor.name))


def delete_a_node(graph: onnx.GraphProto, dice: random.Random) -> None:
    del graph.node[dice.randrange(len(graph.node))]


def exchange_weights(graph: onnx.GraphProto, dice: random.Random) -> None:
    first, second = dice.sample(list(graph.initializer), 2)
    first.name, second.name = second.name, first.name


EDITS = (drop_a_part, blank_a_name, change_an_attribute, change_a_shape, delete_a_node, exchange_weights)


def prune(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the operations that the loader skips, so that edits hit those that count."""
    kept = ("Conv", "ConvTranspose", "Gather", "Sub", "Mul", "Exp", "Neg", "Identity")
    nodes = [node for node in model.graph.node if node.op_type in kept]
    pruned = onnx.ModelProto()
    pruned.CopyFrom(model)
    del pruned.graph.node[:]
    pruned.graph.node.extend(nodes)
    return pruned


def test_random_edits_are_refused_or_harmless(any_model: onnx.ModelProto, tmp_path: Path) -> None:
    model = prune(any_model)
    refused = 0
    for seed in range(FUZZ_ROUNDS):
        dice = random.Random(seed)

        def edit(graph: onnx.GraphProto, dice: random.Random = dice) -> None:
            for _ in range(dice.randint(1, FUZZ_EDITS)):
                dice.choice(EDITS)(graph, dice)

        try:
            load_edited(model, tmp_path, edit)
        except ModelFileError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert refused > FUZZ_ROUNDS // 4
