"""The ONNX reader: what it reads is what the onnx package wrote, and no bytes make it fail in another way."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from mizuoto_runtime.errors import ModelFileError
from mizuoto_runtime.weights.onnx import MAX_FIELDS, OnnxGraph, read_onnx
from mizuoto_runtime.weights.wire import Wire, WireError, read_varint

ARRAYS = {
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5,
    "f64": np.array([1e300, -0.1]),
    "f16": np.array([0.5, -2.0], dtype=np.float16),
    "i64": np.array([-1, 0, 2**62, -(2**63)]),
    "i32": np.array([[-5], [7]], dtype=np.int32),
    "i8": np.array([-128, 127], dtype=np.int8),
    "u8": np.array([0, 255], dtype=np.uint8),
    "flag": np.array([True, False]),
    "scalar": np.array(3.5, dtype=np.float32),
    "none": np.zeros((0, 4), dtype=np.float32),
}


def example() -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([2.0], dtype=np.float32)))
    nodes = [
        constant,
        helper.make_node("Identity", ["f32"], ["alias"]),
        helper.make_node("Identity", ["alias"], ["second_alias"]),
        helper.make_node("Conv", ["x", "w", "b"], ["y"], "/a/b/Conv", dilations=[3], pads=[-1, 2], group=4, eps=0.25),
        helper.make_node("Add", ["y", "c"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "example",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in ARRAYS.items()],
    )
    return helper.make_model(graph)


def written(folder: Path, model: onnx.ModelProto | bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


@pytest.fixture
def graph(tmp_path: Path) -> OnnxGraph:
    return read_onnx(written(tmp_path, example()))


def test_tensors_keep_type_shape_and_values(graph: OnnxGraph) -> None:
    assert graph.initializers.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        got = graph.initializers[name].to_torch()
        assert torch.equal(got, torch.from_numpy(array)), name
        assert got.dtype == torch.from_numpy(array).dtype


def test_tensors_stored_as_lists_are_read(tmp_path: Path) -> None:
    model = example()
    del model.graph.initializer[:]
    lists = {
        TensorProto.FLOAT: [0.5, -1.0],
        TensorProto.DOUBLE: [1e300, 2.0],
        TensorProto.INT64: [-(2**63), 5],
        TensorProto.INT32: [-7, 8],
        TensorProto.INT8: [-128, 127],
        TensorProto.UINT8: [0, 255],
        TensorProto.BOOL: [True, False],
        TensorProto.FLOAT16: np.array([0.5, -2.0], dtype=np.float16),
    }
    for data_type, values in lists.items():
        model.graph.initializer.append(helper.make_tensor(str(data_type), data_type, [2], values))
    graph = read_onnx(written(tmp_path, model))
    for data_type, values in lists.items():
        assert graph.initializers[str(data_type)].to_torch().tolist() == list(values)


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    weights = np.ones(4_000_000, dtype=np.float32)
    model = helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(weights, "w")]))
    path = written(tmp_path, model)
    tracemalloc.start()
    graph = read_onnx(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(graph.initializers["w"].data) == 16_000_000
    assert peak_bytes < 1_000_000


def test_the_graph_is_read(graph: OnnxGraph, tmp_path: Path) -> None:
    assert (graph.inputs, graph.outputs) == (("x",), ("z",))
    assert [node.op_type for node in graph.nodes] == ["Constant", "Identity", "Identity", "Conv", "Add"]
    conv = graph.producers["y"]
    assert (conv.name, conv.inputs, conv.outputs) == ("/a/b/Conv", ("x", "w", "b"), ("y",))
    assert conv.integers("dilations", ()) == (3,)
    assert conv.integers("pads", ()) == (-1, 2)
    assert conv.integers("strides", (1,)) == (1,)
    assert conv.attributes["group"] == 4
    assert conv.attributes["eps"] == 0.25
    assert graph.consumers["y"] == (graph.nodes[4],)
    assert graph.sha256 == hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()


def test_constants_are_found_behind_their_other_names(graph: OnnxGraph) -> None:
    assert graph.constant("second_alias") is graph.initializers["f32"]
    constant = graph.constant("c")
    assert constant is not None
    assert constant.to_torch().tolist() == [2.0]
    assert graph.constant("y") is None
    assert graph.constant("unheard of") is None


def test_circular_names_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["a"], ["b"]), helper.make_node("Identity", ["b"], ["a"])]
    graph = read_onnx(written(tmp_path, helper.make_model(helper.make_graph(nodes, "g", [], []))))
    with pytest.raises(WireError, match="circle"):
        graph.constant("a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"Hello, I am a voice.\n", "text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 63201294\n", "Git LFS pointer"),
        (b"\n<!DOCTYPE html><html></html>", "web page"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (bytes(100), "not an ONNX model"),
        (b"\x08\x07", "no graph"),
        (b"\xff" * 64, "more than 64 bits"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ModelFileError, match=message) as caught:
        read_onnx(path)
    assert str(path) in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(ModelFileError, match="can't be read"):
            read_onnx(path)


@pytest.mark.parametrize("dims", [[1 << 39], [1 << 20, 1 << 20], [1 << 62, 4], [-1], [2] * 17, [3], [0]])
def test_shapes_must_agree_with_the_bytes_present(tmp_path: Path, dims: list[int]) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=bytes(8))
    path = written(tmp_path, helper.make_model(helper.make_graph([], "g", [], [], [tensor])))
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="'w'"):
        read_onnx(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_weights_in_other_files_are_refused(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../etc/passwd")
    with pytest.raises(ModelFileError, match="self-contained"):
        read_onnx(written(tmp_path, helper.make_model(helper.make_graph([], "g", [], [], [tensor]))))


def test_tensors_of_texts_and_unknown_types_are_refused(tmp_path: Path) -> None:
    for data_type in (TensorProto.STRING, 99, 0):
        tensor = TensorProto(name="w", data_type=data_type, dims=[0])
        with pytest.raises(ModelFileError, match="unknown element type"):
            read_onnx(written(tmp_path, helper.make_model(helper.make_graph([], "g", [], [], [tensor]))))


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    tensors = [numpy_helper.from_array(np.ones(size, dtype=np.float32), "w") for size in (1, 2)]
    with pytest.raises(ModelFileError, match="two tensors named 'w'"):
        read_onnx(written(tmp_path, helper.make_model(helper.make_graph([], "g", [], [], tensors))))


def test_floods_of_tiny_fields_are_refused(tmp_path: Path) -> None:
    flood = b"\x0a\x00" * (MAX_FIELDS + 1)
    graph = b"\x3a" + varint(len(flood)) + flood
    with pytest.raises(ModelFileError, match="more than 250,000 fields"):
        read_onnx(written(tmp_path, graph))


def varint(value: int) -> bytes:
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


@given(value=st.integers(0, 2**64 - 1))
def test_varints_come_back(value: int) -> None:
    encoded = varint(value)
    assert read_varint(memoryview(encoded), 0) == (value, len(encoded))


@given(content=st.binary(max_size=300))
def test_any_bytes_are_fields_or_a_wire_error(content: bytes) -> None:
    try:
        fields = list(Wire(1000).fields(memoryview(content)))
    except WireError:
        return
    assert len(fields) <= len(content)


def read_or_refuse(path: Path) -> None:
    try:
        graph = read_onnx(path)
    except ModelFileError as error:
        assert str(path) in str(error)
        return
    try:
        for node in graph.nodes:
            assert isinstance(dict(node.attributes), dict)
        for tensor in graph.initializers.values():
            graph.constant(tensor.name)
    except WireError:
        pass


def test_truncation_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    content = example().SerializeToString()
    refused = 0
    for size in range(1, len(content)):
        path = written(tmp_path, content[:size])
        try:
            graph = read_onnx(path)
        except ModelFileError:
            refused += 1
        else:
            assert graph.initializers.keys() == ARRAYS.keys()
    assert refused > 0.9 * len(content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_bits_are_refused_or_read(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(example().SerializeToString())
    for position in data.draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=5)):
        content[position // 8] ^= 1 << position % 8
    read_or_refuse(written(tmp_path, bytes(content)))
