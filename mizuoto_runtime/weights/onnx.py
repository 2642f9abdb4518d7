"""Reads the weights and the graph of an ONNX file in pure Python, in place and without trust.

Format: onnx.proto of https://github.com/onnx/onnx (IR versions 3 to 11). Nothing is executed, nothing outside the file
is opened, and no memory is allocated because of a declared shape: a tensor's shape must agree with the bytes present.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import ModelFileError
from .raw import ELEMENT_BYTES, RawTensor
from .wire import BYTES, FIXED32, FIXED64, Wire, WireError, as_bytes, as_int, as_text

MAX_FIELDS = 250_000  # a voice has about 40,000
MAX_ATTRIBUTE_FIELDS = 10_000
MAX_RANK = 16
MAX_ALIASES = 64

_DTYPES = {  # TensorProto.DataType
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    16: "bfloat16",
}
_TYPECODES = {"int8": "b", "uint8": "B", "bool": "B", "int16": "h", "int32": "i", "int64": "q"}
_TYPECODES |= {"float16": "H", "bfloat16": "H"}


@dataclass(frozen=True)
class OnnxNode:
    """One operation. Its attributes are decoded when asked for; subgraphs are never entered."""

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    raw_attributes: tuple[memoryview, ...]

    @cached_property
    def attributes(self) -> Mapping[str, int | float | tuple[int, ...] | RawTensor]:
        """The attributes that are an integer, a number, a list of integers or a tensor."""
        found = {}
        for message in self.raw_attributes:
            name, value = _read_attribute(Wire(MAX_ATTRIBUTE_FIELDS), message)
            if value is not None:
                found[name] = value
        return found

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """The attribute `name`, a list of integers; `default` where the node has none."""
        value = self.attributes.get(name, default)
        if not isinstance(value, tuple):
            raise WireError(f"attribute {name!r} of node {self.name!r} is not a list of integers")
        return value

    def integer(self, name: str, default: int) -> int:
        """The attribute `name`, an integer; `default` where the node has none."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise WireError(f"attribute {name!r} of node {self.name!r} is not an integer")
        return value


@dataclass(frozen=True)
class OnnxGraph:
    """A model's graph. Nodes stand in the file's order, which is an order of execution. `sha256`: of the whole file."""

    path: Path
    sha256: str
    nodes: tuple[OnnxNode, ...]
    initializers: Mapping[str, RawTensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def producers(self) -> Mapping[str, OnnxNode]:
        """The node that computes each value."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[OnnxNode, ...]]:
        """The nodes that read each value."""
        found: dict[str, list[OnnxNode]] = {}
        for node in self.nodes:
            for name in set(node.inputs):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def source(self, name: str) -> str:
        """The value that `name` is another name of: exporters store equal weights once, the others are Identity."""
        for _ in range(MAX_ALIASES):
            node = self.producers.get(name)
            if node is None or node.op_type != "Identity" or len(node.inputs) != 1:
                return name
            name = node.inputs[0]
        raise WireError(f"value {name!r} goes round in a circle")

    def constant(self, name: str) -> RawTensor | None:
        """The constant that `name` stands for: an initializer or a Constant node's; None for a computed value."""
        name = self.source(name)
        if name in self.initializers:
            return self.initializers[name]
        node = self.producers.get(name)
        value = node.attributes.get("value") if node is not None and node.op_type == "Constant" else None
        return value if isinstance(value, RawTensor) else None


def read_onnx(path: Path) -> OnnxGraph:
    """Read the graph in `path`; its tensors stay in the mapped file.

    Raises ModelFileError, which names the file, if it can't be read or isn't a whole, self-contained ONNX model.
    """
    mapping = _map(path)
    try:
        return _read_model(path, hashlib.sha256(mapping).hexdigest(), memoryview(mapping))
    except WireError as error:
        raise ModelFileError(f"{path}: {_kind(mapping)} ({error}). Download the file again.") from error


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise ModelFileError(f"{path}: the file is empty. Download it again.") from error
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read: {error.strerror or error}") from error


def _kind(mapping: mmap.mmap) -> str:
    head = mapping[:512]
    if head.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the model itself"
    if head.startswith(b"PK"):
        return "this is a zip archive or a PyTorch checkpoint, not an ONNX model"
    if head.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "this is a web page, not an ONNX model"
    if all(byte >= 0x20 or byte in b"\t\r\n" for byte in head):
        return "this is a text file, not an ONNX model"
    return "not an ONNX model, or a damaged or incomplete one"


def _read_model(path: Path, sha256: str, message: memoryview) -> OnnxGraph:
    wire, graph = Wire(MAX_FIELDS), None
    for number, wire_type, value in wire.fields(message):
        if number == 7:
            if graph is not None:
                raise WireError("it has two graphs")
            graph = _read_graph(wire, path, sha256, as_bytes(wire_type, value))
    if graph is None:
        raise WireError("it has no graph")
    return graph


def _read_graph(wire: Wire, path: Path, sha256: str, message: memoryview) -> OnnxGraph:
    nodes, inputs, outputs = [], [], []
    initializers: dict[str, RawTensor] = {}
    for number, wire_type, value in wire.fields(message):
        if number == 1:
            nodes.append(_read_node(wire, as_bytes(wire_type, value)))
        elif number == 5:
            tensor = _read_tensor(wire, as_bytes(wire_type, value))
            if tensor.name in initializers:
                raise WireError(f"it has two tensors named {tensor.name!r}")
            initializers[tensor.name] = tensor
        elif number == 11:
            inputs.append(_read_value_name(wire, as_bytes(wire_type, value)))
        elif number == 12:
            outputs.append(_read_value_name(wire, as_bytes(wire_type, value)))
    return OnnxGraph(path, sha256, tuple(nodes), initializers, tuple(inputs), tuple(outputs))


def _read_value_name(wire: Wire, message: memoryview) -> str:
    names = [as_text(wire_type, value) for number, wire_type, value in wire.fields(message) if number == 1]
    return names[-1] if names else ""


def _read_node(wire: Wire, message: memoryview) -> OnnxNode:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [""], 4: [""]}
    attributes = []
    for number, wire_type, value in wire.fields(message):
        if number in texts:
            texts[number].append(as_text(wire_type, value))
        elif number == 5:
            attributes.append(as_bytes(wire_type, value))
    return OnnxNode(texts[4][-1], texts[3][-1], tuple(texts[1]), tuple(texts[2]), tuple(attributes))


def _read_attribute(wire: Wire, message: memoryview) -> tuple[str, int | float | tuple[int, ...] | RawTensor | None]:
    name, found, ints = "", None, array("q")
    for number, wire_type, value in wire.fields(message):
        if number == 1:
            name = as_text(wire_type, value)
        elif number == 2 and wire_type == FIXED32 and isinstance(value, memoryview):
            found = struct.unpack("<f", value)[0]
        elif number == 3:
            found = as_int(wire_type, value)
        elif number == 5:
            found = _read_tensor(wire, as_bytes(wire_type, value))
        elif number == 8:
            ints.extend(_read_ints(wire, wire_type, value))
    return name, tuple(ints) if ints else found


def _read_ints(wire: Wire, wire_type: int, value: int | memoryview) -> array[int]:
    if wire_type == BYTES:
        return wire.signed_varints(as_bytes(wire_type, value))
    return array("q", [as_int(wire_type, value)])


def _read_tensor(wire: Wire, message: memoryview) -> RawTensor:
    name, type_code, shape = "", 0, array("q")
    ints, parts = array("q"), []
    for number, wire_type, value in wire.fields(message):
        if number == 1:
            shape.extend(_read_ints(wire, wire_type, value))
        elif number == 2:
            type_code = as_int(wire_type, value)
        elif number in (5, 7):
            ints.extend(_read_ints(wire, wire_type, value))
        elif number == 8:
            name = as_text(wire_type, value)
        elif number in (4, 9, 10) and wire_type in (BYTES, FIXED32, FIXED64) and isinstance(value, memoryview):
            parts.append(value)
        elif number == 13 or (number == 14 and value != 0):
            raise WireError(f"tensor {name!r} lies in another file, and only self-contained files are read")
        elif number in (3, 6, 11):
            raise WireError(f"tensor {name!r} is stored in segments, as texts or as uint64, which is not supported")
    return _make_tensor(name, type_code, tuple(shape), ints, parts)


def _make_tensor(
    name: str, type_code: int, shape: tuple[int, ...], ints: array[int], parts: list[memoryview]
) -> RawTensor:
    if type_code not in _DTYPES:
        raise WireError(f"tensor {name!r} has the unknown element type {type_code}")
    dtype = _DTYPES[type_code]
    if len(shape) > MAX_RANK or any(not 0 <= size < 1 << 40 for size in shape):
        raise WireError(f"tensor {name!r} has an impossible shape of {len(shape)} dimensions")
    if ints:
        parts = [*parts, _pack_ints(name, dtype, ints)]
    data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
    needed_bytes = math.prod(shape) * ELEMENT_BYTES[dtype]
    if len(data) != needed_bytes:
        raise WireError(f"tensor {name!r} is {list(shape)} {dtype}, {needed_bytes:,} bytes, but has {len(data):,}")
    return RawTensor(name, dtype, shape, data)


def _pack_ints(name: str, dtype: str, ints: array[int]) -> memoryview:
    if dtype not in _TYPECODES:
        raise WireError(f"tensor {name!r} is {dtype} but stored as integers")
    try:
        packed = array(_TYPECODES[dtype], ints)
    except OverflowError as error:
        raise WireError(f"tensor {name!r} has an element outside the range of {dtype}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return memoryview(packed).cast("B")
