"""Finds a Piper voice's weights and sizes in its exported graph.

Names: the modules of `piper/train/vits/models.py` in piper-tts 1.8.0, which the exporter keeps as the names of the
weights, except for these, found through the graph instead:

- Convolutions under weight normalisation are stored under generated names (`onnx::Conv_8168`). They are found by the
  node that uses them: its bias still has the module's name, and newer exporters name the node after the module too.
- The symbols' embedding may be named `sid`, after an input that single-speaker voices lack: it is what the input
  `input` indexes.
- The scale of the duration flow's last step is stored as exp(−logs) or −logs.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator

from ...errors import ModelFileError
from ...weights.onnx import OnnxGraph, OnnxNode
from ...weights.raw import RawTensor
from .architecture import MAX_BLOCKS, MAX_CHANNELS, MAX_DILATION

EMBEDDING = "enc_p.emb.weight"
SPEAKERS = "emb_g.weight"
_ROOTS = ("enc_p.", "dp.", "flow.", "dec.", "emb_g.")
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_TRAINING_ONLY = re.compile(r"enc_q\.|dp\.post_|dp\.flows\.(0\.logs$|1\.)")
_MAX_CONSTANT_BYTES = 64


class ExportedVoice:
    """The weights of a voice by the names that piper-tts gives them, and its convolutions by module."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self.convolutions: dict[str, OnnxNode] = {}
        self._used: set[str] = set()
        for node in graph.nodes:
            if node.op_type in _CONVOLUTIONS:
                self._add(node)

    def error(self, problem: str) -> ModelFileError:
        return ModelFileError(f"{self.graph.path}: {problem}. Is it a voice exported by Piper?")

    def weight(self, name: str) -> RawTensor:
        """The weight `name`; from now on it counts as used."""
        tensor = self._find(name)
        if tensor is None:
            raise self.error(f"the weight {name!r} is missing")
        if tensor.dtype != "float32":
            raise self.error(f"the weight {name!r} is stored as {tensor.dtype}; only float32 voices are supported")
        self._used.add(tensor.name)
        return tensor

    def has(self, module: str) -> bool:
        """Whether the graph runs the convolution `module`."""
        return module in self.convolutions

    def count(self, pattern: str) -> int:
        """How many convolutions `pattern` with 0, 1, 2 … in place of {} the graph runs: MAX_BLOCKS at most."""
        count = 0
        while self.has(pattern.format(count)):
            count += 1
            if count > MAX_BLOCKS:
                raise self.error(f"it has more than {MAX_BLOCKS} convolutions {pattern!r}")
        return count

    def indices(self, pattern: str) -> list[int]:
        """The numbers that stand for {} in the convolutions `pattern`, in order of execution."""
        matcher = re.compile(re.escape(pattern).replace(r"\{\}", r"(\d{1,4})"))
        return [int(match[1]) for module in self.convolutions if (match := matcher.fullmatch(module))]

    def shape(self, module: str) -> tuple[int, ...]:
        """The three dimensions of a convolution's weight."""
        return self.dimensions(f"{module}.weight", 3)

    def dimensions(self, name: str, count: int) -> tuple[int, ...]:
        """The shape of the weight `name`, which must have `count` dimensions, none of them empty."""
        shape = self.weight(name).shape
        if len(shape) != count or not all(1 <= size <= MAX_CHANNELS for size in shape):
            raise self.error(f"the weight {name!r} has the shape {list(shape)}; {count} dimensions are needed")
        return shape

    def kernel_size(self, module: str) -> int:
        """The odd kernel size of a convolution that keeps the length."""
        size = self.shape(module)[2]
        if size % 2 == 0:
            raise self.error(f"{module!r} has the even kernel size {size}")
        return size

    def dilation(self, module: str) -> int:
        """The dilation of a convolution that keeps the length."""
        node, size = self._node(module), self.kernel_size(module)
        dilations = node.integers("dilations", (1,))
        padding = dilations[0] * (size - 1) // 2
        if len(dilations) != 1 or not 1 <= dilations[0] <= MAX_DILATION:
            raise self.error(f"{module!r} has the dilations {reprlib.repr(list(dilations))}")
        if node.integers("strides", (1,)) != (1,) or node.integers("pads", (0, 0)) != (padding, padding):
            raise self.error(f"{module!r} changes the length of its input")
        return dilations[0]

    def rate(self, module: str) -> int:
        """By how much a transposed convolution lengthens its input."""
        node, size = self._node(module), self.shape(module)[2]
        strides = node.integers("strides", (1,))
        padding = (size - strides[0]) // 2
        plain = node.integers("output_padding", (0,)) == (0,) and node.integers("dilations", (1,)) == (1,)
        if node.op_type != "ConvTranspose" or not 1 <= strides[0] <= size or (size - strides[0]) % 2 or not plain:
            raise self.error(f"{module!r} lengthens by {reprlib.repr(list(strides))} with a kernel of {size}, which is not supported")
        if len(strides) != 1 or node.integers("pads", (0, 0)) != (padding, padding):
            raise self.error(f"{module!r} gives another length than its input's times {strides[0]}")
        return strides[0]

    def check_all_used(self) -> None:
        """Raise ModelFileError if the file has a weight that nothing asked for.

        Small unnamed constants (shapes, axes, epsilons) belong to the graph's operations, not to the model.
        """
        for name, tensor in self.graph.initializers.items():
            if name in self._used or _TRAINING_ONLY.match(name):
                continue
            large = "float" in tensor.dtype and len(tensor.data) > _MAX_CONSTANT_BYTES
            if large or name.startswith(_ROOTS):
                raise self.error(f"the weight {name!r} {list(tensor.shape)} has no place in the model")

    def _node(self, module: str) -> OnnxNode:
        if module not in self.convolutions:
            raise self.error(f"the convolution {module!r} is missing")
        return self.convolutions[module]

    def _add(self, node: OnnxNode) -> None:
        modules = set(_module_names(node))
        if len(modules) > 1:
            raise self.error(f"node {node.name!r} could be any of {', '.join(sorted(modules))}")
        if modules and len(node.inputs) < 2:
            raise self.error(f"the convolution {modules.pop()!r} has no weight")
        for module in modules:
            if module in self.convolutions:
                raise self.error(f"the convolution {module!r} occurs twice")
            self.convolutions[module] = node

    def _find(self, name: str) -> RawTensor | None:
        if name == EMBEDDING:
            return self._indexed_by("input")
        if name == SPEAKERS:
            return self._indexed_by("sid")
        tensor = self.graph.constant(name)
        module, _, kind = name.rpartition(".")
        if tensor is None and kind == "weight" and module in self.convolutions:
            tensor = self.graph.constant(self.convolutions[module].inputs[1])
        return tensor

    def _indexed_by(self, graph_input: str) -> RawTensor | None:
        if graph_input not in self.graph.inputs:
            return None
        for node in self.graph.consumers.get(graph_input, ()):
            if node.op_type == "Gather" and len(node.inputs) == 2 and node.inputs[1] == graph_input:
                return self.graph.constant(node.inputs[0])
        return None

    def duration_scale(self) -> tuple[RawTensor, list[str]]:
        """What the last step of the duration flow multiplies by: a constant, and the functions to apply to it."""
        for node in self.graph.consumers.get("dp.flows.0.m", ()):
            difference = node.outputs[0] if node.op_type == "Sub" and node.outputs else ""
            for product in self.graph.consumers.get(difference, ()) if difference else ():
                if product.op_type == "Mul":
                    other = next((name for name in product.inputs if name != difference), "")
                    return self._folded(other)
        raise self.error("the scale of the duration flow 'dp.flows.0' is missing")

    def _folded(self, name: str) -> tuple[RawTensor, list[str]]:
        functions: list[str] = []
        while (tensor := self.graph.constant(name)) is None:
            node = self.graph.producers.get(self.graph.source(name))
            if node is None or node.op_type not in ("Exp", "Neg") or len(node.inputs) != 1 or len(functions) > 4:
                raise self.error("the scale of the duration flow 'dp.flows.0' is no constant")
            functions.insert(0, node.op_type)
            name = node.inputs[0]
        if tensor.dtype != "float32" or tensor.shape != (2, 1):
            raise self.error(f"the scale of 'dp.flows.0' is {list(tensor.shape)} {tensor.dtype}, not [2, 1] float32")
        self._used.add(tensor.name)
        return tensor, functions


def _module_names(node: OnnxNode) -> Iterator[str]:
    """The module that a convolution belongs to, by each name that tells it: its weight's, its bias's, its own."""
    for name, ending in zip(node.inputs[1:3], (".weight", ".bias"), strict=False):
        if name.startswith(_ROOTS) and name.endswith(ending):
            yield name.removesuffix(ending)
    scope = node.name.strip("/").rpartition("/")[0].replace("/", ".")
    if scope.startswith(_ROOTS):
        yield scope
