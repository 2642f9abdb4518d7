"""Engine declarations → plain node declarations: ids, sockets, widgets, texts. Needs neither ComfyUI nor torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..mizuoto_runtime.engines.spec import AUDIO, MODEL, SHARED_TYPES, TEXT, EngineSpec, Param, Phase, Port
from ..mizuoto_runtime.seeds import MAX_SEED

Role = Literal["model", "phase", "options", "speak"]
InputKind = Literal["socket", "model", "seed", "int", "float", "bool", "choice", "text", "paragraph"]

CATEGORY = "audio/mizuoto"
OPTIONS = "OPTIONS"
VOICE = "VOICE"
STRING = "STRING"
SPEAK_ID = "MizuotoSpeak"
FLOAT_STEP = 0.01
WIDEST = 2**53


@dataclass(frozen=True, kw_only=True)
class NodeInput:
    """One input of a node: a widget, or a socket that takes `types` if its kind is "socket".

    `lazy`: what is linked to it runs only if the node asks for it. `auto`: the one value outside `low` … `high` that is
    allowed too; it means "as the model says".
    """

    id: str
    kind: InputKind
    label: str
    tooltip: str
    types: tuple[str, ...] = ()
    optional: bool = False
    lazy: bool = False
    default: object = None
    low: float | None = None
    high: float | None = None
    step: float | None = None
    auto: object = None
    choices: tuple[str, ...] = ()
    advanced: bool = False

    @property
    def widget_range(self) -> tuple[float | None, float | None]:
        """The smallest and the largest number that the widget must admit; None for what isn't a number."""
        if self.low is None or self.high is None or not isinstance(self.auto, (int, float)):
            return self.low, self.high
        return min(self.low, self.auto), max(self.high, self.auto)


@dataclass(frozen=True, kw_only=True)
class NodeOutput:
    """One output of a node. Its id never equals an input's, as older ComfyUI demands."""

    id: str
    type: str
    label: str
    tooltip: str


@dataclass(frozen=True, kw_only=True)
class NodeDeclaration:
    """All that ComfyUI shows of one node. `engine` and `phase` are ids, empty where the role has none."""

    id: str
    role: Role
    label: str
    category: str
    description: str
    inputs: tuple[NodeInput, ...]
    outputs: tuple[NodeOutput, ...]
    engine: str = ""
    phase: str = ""


def node_declarations(specs: Sequence[EngineSpec]) -> tuple[NodeDeclaration, ...]:
    """The nodes of all engines, in menu order, and Speak, which takes any of them."""
    nodes: list[NodeDeclaration] = []
    for spec in specs:
        nodes += [_model_node(spec), *(_phase_node(spec, phase) for phase in spec.phases), _options_node(spec)]
    return (_speak_node(specs), *nodes)


def phase_node_id(spec: EngineSpec, phase: Phase) -> str:
    return f"Mizuoto{_joined(spec.label)}{_joined(phase.label)}"


def supplied_ports(spec: EngineSpec) -> tuple[Port, ...]:
    """What a user of Speak may give besides the model, the text and options: one port per name."""
    wanted = SHARED_TYPES | {VOICE}
    ports = [port for phase in spec.phases for port in phase.takes if port.type in wanted and port.name != "text"]
    return tuple({port.name: port for port in ports}.values())


def engine_params(spec: EngineSpec) -> tuple[Param, ...]:
    """The parameters of all phases, each name once."""
    return tuple({param.name: param for phase in spec.phases for param in phase.params}.values())


def model_node_id(spec: EngineSpec) -> str:
    return f"Mizuoto{_joined(spec.label)}Model"


def options_node_id(spec: EngineSpec) -> str:
    return f"Mizuoto{_joined(spec.label)}Options"


def _joined(label: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", label)
    return "".join(word[0].upper() + word[1:] for word in words)


def _model_node(spec: EngineSpec) -> NodeDeclaration:
    ref_type = spec.type_name(MODEL)
    menu = NodeInput(
        id="model",
        kind="model",
        label="model",
        tooltip=f"An installed {spec.label} model, or a published one.",
    )
    return NodeDeclaration(
        id=model_node_id(spec),
        role="model",
        label=f"{spec.label} Model",
        category=f"{CATEGORY}/{spec.label}",
        description=f"Chooses a model of {spec.label}. {spec.description}",
        inputs=(menu,),
        outputs=(_output("model", ref_type, f"The chosen model, for Speak or any {spec.label} node."),),
        engine=spec.id,
    )


def _phase_node(spec: EngineSpec, phase: Phase) -> NodeDeclaration:
    ports = tuple(_port_input(spec, port) for port in phase.takes)
    seed = (_seed_input(),) if phase.seeded else ()
    outputs = [
        _output(port.name, spec.type_name(port.type), port.tooltip, label=port.label or port.name)
        for port in phase.gives
    ]
    if any(port.type == AUDIO for port in phase.gives):
        outputs.append(_report_output())
    return NodeDeclaration(
        id=phase_node_id(spec, phase),
        role="phase",
        label=f"{spec.label} {phase.label}",
        category=f"{CATEGORY}/{spec.label}",
        description=phase.tooltip,
        inputs=(*ports, *seed, *(_param_input(param) for param in phase.params)),
        outputs=tuple(outputs),
        engine=spec.id,
        phase=phase.id,
    )


def _options_node(spec: EngineSpec) -> NodeDeclaration:
    return NodeDeclaration(
        id=options_node_id(spec),
        role="options",
        label=f"{spec.label} Options",
        category=f"{CATEGORY}/{spec.label}",
        description=f"Every parameter of {spec.label}, for the options input of Speak.",
        inputs=tuple(_param_input(param) for param in engine_params(spec)),
        outputs=(_output("options", spec.type_name(OPTIONS), "The parameters that differ from their defaults."),),
        engine=spec.id,
    )


def _speak_node(specs: Sequence[EngineSpec]) -> NodeDeclaration:
    model = NodeInput(
        id="model",
        kind="socket",
        types=tuple(spec.type_name(MODEL) for spec in specs),
        label="model",
        tooltip="A model of any engine.",
    )
    tooltip = "What to say, up to a million characters."
    text = NodeInput(id="text", kind="paragraph", label="text", tooltip=tooltip, default="")
    options = NodeInput(
        id="options",
        kind="socket",
        types=tuple(spec.type_name(OPTIONS) for spec in specs),
        label="options",
        tooltip="Parameters from the Options node of the model's engine; without it, the defaults.",
        optional=True,
        lazy=True,
    )
    return NodeDeclaration(
        id=SPEAK_ID,
        role="speak",
        label="Speak",
        category=CATEGORY,
        description="Text to speech with any engine. Runs the engine's own nodes, and each is cached on its own.",
        inputs=(model, text, _seed_input(), *_supplied_inputs(specs), options),
        outputs=(_output("audio", AUDIO, "The speech, at the model's own sample rate."), _report_output()),
    )


def _supplied_inputs(specs: Iterable[EngineSpec]) -> Iterable[NodeInput]:
    """One optional input per port name; it takes the types that the engines have under that name."""
    found: dict[str, list[tuple[EngineSpec, Port]]] = {}
    for spec in specs:
        for port in supplied_ports(spec):
            found.setdefault(port.name, []).append((spec, port))
    for name, owners in found.items():
        first = owners[0][1]
        yield NodeInput(
            id=name,
            kind="paragraph" if first.type == TEXT else "socket",
            types=tuple(dict.fromkeys(spec.type_name(port.type) for spec, port in owners)),
            label=first.label or name,
            tooltip=_each_tooltip(owners),
            optional=True,
            default="" if first.type == TEXT else None,
        )


def _each_tooltip(owners: Iterable[tuple[EngineSpec, Port]]) -> str:
    """What each engine says of its port; engines that say the same stand together."""
    labels: dict[str, list[str]] = {}
    for spec, port in owners:
        labels.setdefault(port.tooltip, []).append(spec.label)
    return " ".join(f"{', '.join(names)}: {tooltip}" for tooltip, names in labels.items())


def _port_input(spec: EngineSpec, port: Port) -> NodeInput:
    is_text = port.type == TEXT
    return NodeInput(
        id=port.name,
        kind="paragraph" if is_text else "socket",
        types=() if is_text else (spec.type_name(port.type),),
        label=port.label or port.name,
        tooltip=port.tooltip,
        optional=port.optional,
        default="" if is_text else None,
    )


def _seed_input() -> NodeInput:
    tooltip = "The same seed gives the same speech; another one varies it."
    return NodeInput(id="seed", kind="seed", label="seed", tooltip=tooltip, default=0, low=0, high=MAX_SEED, step=1)


def _param_input(param: Param) -> NodeInput:
    """The widget of a parameter.

    Optional, so that a saved prompt stays valid when an engine gains a parameter, and scripts may leave it out.
    """
    is_number = param.kind in ("int", "float")
    low = -WIDEST if param.low is None else param.low
    high = WIDEST if param.high is None else param.high
    return NodeInput(
        id=param.name,
        kind=param.kind,
        label=param.label or param.name,
        tooltip=param.tooltip,
        optional=True,
        default=param.default,
        low=low if is_number else None,
        high=high if is_number else None,
        step=(param.step or (1 if param.kind == "int" else FLOAT_STEP)) if is_number else None,
        auto=param.auto,
        choices=param.choices,
        advanced=param.advanced,
    )


def _report_output() -> NodeOutput:
    tooltip = "What was done, how long each phase took and the memory it used, as JSON."
    return _output("report", STRING, tooltip)


def _output(name: str, type_: str, tooltip: str, label: str = "") -> NodeOutput:
    return NodeOutput(id=f"out_{name}", type=type_, label=label or name, tooltip=tooltip)
