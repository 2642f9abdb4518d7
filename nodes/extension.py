"""The node classes that ComfyUI lists: one per declaration, without state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from comfy_api.latest import ComfyExtension, io
from comfy_execution.graph_utils import GraphBuilder

from ..mizuoto_runtime.engines.registry import all_engines, engine_spec
from ..mizuoto_runtime.errors import MizuotoError
from . import bridge, process
from .declare import NodeDeclaration, node_declarations, options_node_id
from .expand import Expansion, Link, SpeakCall, expand_speak
from .schema import node_schema
from .served import register_routes
from .wire import (
    SpeakOptions,
    is_link,
    model_ref,
    phase_inputs,
    phase_options,
    phase_outputs,
    phase_ui,
    speak_options,
    writable,
    writable_errors,
)


class DeclaredNode(io.ComfyNode):
    """A node that is what its declaration says."""

    declaration: ClassVar[NodeDeclaration]

    @classmethod
    def define_schema(cls) -> io.Schema:
        return node_schema(cls.declaration)


class ModelNode(DeclaredNode):
    """Names a model. The menu is read from the disk each time, so that a refresh shows new files."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        spec, library = engine_spec(cls.declaration.engine), process.library()
        known = library.known(spec)
        default = next(iter(library.installed(spec)), next(iter(known), None))
        return node_schema(cls.declaration, known, default)

    @classmethod
    def validate_inputs(cls, model: object = None) -> bool | str:
        """Says before anything runs that a model is missing; a linked name is known only when the node runs."""
        if model is None:
            return True
        try:
            process.library().find(engine_spec(cls.declaration.engine), str(model))
        except MizuotoError as error:
            return writable(str(error))
        return True

    @classmethod
    def fingerprint_inputs(cls, model: object = None) -> object:
        """Changes when the model's file is replaced, or would be loaded in another dtype, and at nothing else."""
        try:
            files = process.library().find(engine_spec(cls.declaration.engine), str(model))
            return files.identity(), process.saved_settings().resolve().text("compute.dtype")
        except (MizuotoError, OSError):
            return "absent"

    @classmethod
    @writable_errors()
    def execute(cls, model: str) -> io.NodeOutput:
        files = process.library().find(engine_spec(cls.declaration.engine), model)
        return io.NodeOutput(files.ref)


class PhaseNode(DeclaredNode):
    """Runs one phase of an engine."""

    @classmethod
    @bridge.comfys_out_of_memory()
    @writable_errors()
    def execute(cls, **values: object) -> io.NodeOutput:
        spec = engine_spec(cls.declaration.engine)
        phase = spec.phase(cls.declaration.phase)
        session = process.session()
        files = session.find(*model_ref(values.get("model"), spec))
        inputs, options = phase_inputs(phase, values), phase_options(phase, values)
        try:
            made = session.run_phase(files, phase.id, inputs, options, values.get("seed", 0), process.callbacks())
        finally:
            process.pages.held()
        return io.NodeOutput(*phase_outputs(phase, made), ui=phase_ui(phase, made))


class ReadingPhaseNode(PhaseNode):
    """Runs a phase that reads files beside the models, and again when one of them was replaced."""

    @classmethod
    def fingerprint_inputs(cls, **values: object) -> object:
        """What its options name; one that is linked is known only when the node runs."""
        spec = engine_spec(cls.declaration.engine)
        phase = spec.phase(cls.declaration.phase)
        try:
            return process.library().identity_beside(spec, phase, phase.check(phase_options(phase, values)))
        except (MizuotoError, OSError, ValueError):
            return "unreadable"


class OptionsNode(DeclaredNode):
    """Collects the parameters that differ from their defaults."""

    @classmethod
    @writable_errors()
    def execute(cls, **values: object) -> io.NodeOutput:
        return io.NodeOutput(speak_options(engine_spec(cls.declaration.engine), values))


class SpeakNode(DeclaredNode):
    """Turns into the phase nodes of its model's engine.

    Options are read where they stand, without running their node: newer ComfyUI drops whatever a prompt hasn't used yet
    as soon as any node of it has run, and so the cached phases of the run before.
    """

    @classmethod
    def check_lazy_status(cls, **values: object) -> list[str]:
        """Options that come from some other node than Options have to be waited for."""
        is_waiting = is_link(_inputs(cls).get("options")) and values.get("options") is None
        return ["options"] if is_waiting and _written_options(cls) is None else []

    @classmethod
    @writable_errors()
    def execute(cls, **values: object) -> io.NodeOutput:
        wires = {name: value for name, value in _inputs(cls).items() if is_link(value)}
        options = _written_options(cls) or values.get("options")
        return _expanded(expand_speak(SpeakCall(values={**values, "options": options}, wires=wires)))


def _inputs(node: type[io.ComfyNode]) -> Mapping[str, object]:
    """What the prompt says of the inputs of the node that runs."""
    return node.hidden.dynprompt.get_node(node.hidden.unique_id)["inputs"]


def _written_options(node: type[io.ComfyNode]) -> SpeakOptions | None:
    """The options as the prompt has them, None if they don't come straight from an Options node."""
    link = _inputs(node).get("options")
    if not is_link(link):
        return None
    source = node.hidden.dynprompt.get_node(link[0])
    spec = next((spec for spec in all_engines() if options_node_id(spec) == source["class_type"]), None)
    return None if spec is None else speak_options(spec, source["inputs"])


def _expanded(expansion: Expansion) -> io.NodeOutput:
    """The expansion as ComfyUI's graph; the same ids each time, so that cached nodes are found again."""
    builder = GraphBuilder()
    for node in expansion.nodes:
        builder.node(node.class_type, node.phase)

    def resolved(value: object) -> object:
        return builder.lookup_node(value.phase).out(value.index) if isinstance(value, Link) else value

    for node in expansion.nodes:
        for name, value in node.inputs.items():
            builder.lookup_node(node.phase).set_input(name, resolved(value))
    return io.NodeOutput(resolved(expansion.audio), resolved(expansion.report), expand=builder.finalize())


NODE_BASES: dict[str, type[DeclaredNode]] = {
    "model": ModelNode,
    "phase": PhaseNode,
    "options": OptionsNode,
    "speak": SpeakNode,
}


def node_class(declaration: NodeDeclaration) -> type[io.ComfyNode]:
    """The node class of a declaration."""
    members: dict[str, Any] = {"declaration": declaration, "__doc__": declaration.description}
    return type(declaration.id, (_base(declaration),), members)


def _base(declaration: NodeDeclaration) -> type[DeclaredNode]:
    if declaration.role == "phase" and engine_spec(declaration.engine).phase(declaration.phase).reads:
        return ReadingPhaseNode
    return NODE_BASES[declaration.role]


class MizuotoExtension(ComfyExtension):
    """All nodes of the pack."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        bridge.register_folders()  # not in on_load, which 0.3 never calls
        register_routes()
        return [node_class(declaration) for declaration in node_declarations(all_engines())]
