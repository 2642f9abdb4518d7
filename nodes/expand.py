"""Speak as a graph: which phase nodes it turns into, and how they are linked. No ComfyUI here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..mizuoto_runtime.engines.chain import Step, speak_chain
from ..mizuoto_runtime.engines.registry import engine_spec
from ..mizuoto_runtime.engines.spec import AUDIO, MODEL, TEXT, EngineSpec
from ..mizuoto_runtime.errors import InputError
from ..mizuoto_runtime.types import Artifact
from .declare import phase_node_id, supplied_ports
from .wire import SpeakOptions, model_ref


@dataclass(frozen=True)
class Link:
    """The output number `index` of another node of the expansion, named by its phase."""

    phase: str
    index: int


@dataclass(frozen=True)
class SubNode:
    """A phase node of the expansion. An input is a constant, a link inside it, or a link that came from outside."""

    phase: str
    class_type: str
    inputs: Mapping[str, object]


@dataclass(frozen=True)
class Expansion:
    """What Speak turns into. `audio` and `report` are its outputs."""

    nodes: tuple[SubNode, ...]
    audio: Link
    report: Link


@dataclass(frozen=True, kw_only=True)
class SpeakCall:
    """One run of Speak. `values`: what arrived by input name; `wires`: the upstream link of each linked input.

    Values that ComfyUI can't compare (models, voices, audio) go on as their links, so that each phase stays cached.
    """

    values: Mapping[str, object]
    wires: Mapping[str, object] = field(default_factory=dict)


def expand_speak(call: SpeakCall) -> Expansion:
    """The phase nodes that speak the call's text, in running order.

    InputError if the inputs belong to different engines or aren't linked.
    """
    ref = model_ref(call.values.get("model"))
    spec = engine_spec(ref.engine)
    options = _options(spec, call.values.get("options"))
    supplied = {"text": call.values.get("text", ""), **_supplied(spec, call)}
    steps = speak_chain(spec, supplied, options)
    seed = call.values.get("seed", 0)
    nodes = tuple(_sub_node(spec, step, call, supplied, options, seed) for step in steps)
    last = steps[-1].phase
    audio = next(index for index, port in enumerate(last.gives) if port.type == AUDIO)
    return Expansion(nodes, Link(last.id, audio), Link(last.id, len(last.gives)))


def _options(spec: EngineSpec, options: object) -> Mapping[str, object]:
    if options is None:
        return {}
    if not isinstance(options, SpeakOptions):
        raise InputError(f"the input 'options' must come from the {spec.label} Options node")
    if options.engine != spec.id:
        other = engine_spec(options.engine).label
        raise InputError(f"the options are for {other}, the model is {spec.label}; connect {spec.label} Options")
    return options.values


def _supplied(spec: EngineSpec, call: SpeakCall) -> dict[str, object]:
    """The values of further inputs that the engine has; InputError for one that it hasn't."""
    ports = {port.name: port for port in supplied_ports(spec)}
    given = {
        name: value
        for name, value in call.values.items()
        if name not in ("model", "text", "seed", "options") and value is not None and value != ""
    }
    for name, value in given.items():
        if name not in ports:
            raise InputError(f"{spec.label} takes no input {name!r}; disconnect it. It takes: {sorted(ports)}")
        wanted = spec.type_name(ports[name].type)
        if isinstance(value, Artifact) and value.type != wanted:
            raise InputError(f"the input {name!r} is {value.type}, but the model is {spec.label}, which needs {wanted}")
    return given


def _sub_node(
    spec: EngineSpec,
    step: Step,
    call: SpeakCall,
    supplied: Mapping[str, object],
    options: Mapping[str, object],
    seed: object,
) -> SubNode:
    inputs: dict[str, object] = dict(step.options(options))
    for port in step.phase.takes:
        if port.name in step.links:
            inputs[port.name] = Link(*step.links[port.name])
        elif port.type == MODEL:
            inputs[port.name] = _wire(call, "model")
        elif port.name in supplied:
            inputs[port.name] = supplied[port.name] if port.type == TEXT else _wire(call, port.name)
    if step.phase.seeded:
        inputs["seed"] = seed
    return SubNode(step.phase.id, phase_node_id(spec, step.phase), inputs)


def _wire(call: SpeakCall, name: str) -> object:
    if name not in call.wires:
        raise InputError(f"the input {name!r} must be linked to another node")
    return call.wires[name]
