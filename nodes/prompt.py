"""A spoken text as a workflow in ComfyUI's API form, for requests that come over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..mizuoto_runtime.engines.chain import speak_chain
from ..mizuoto_runtime.engines.registry import engine_spec
from ..mizuoto_runtime.engines.spec import AUDIO, TEXT, EngineSpec
from ..mizuoto_runtime.errors import InputError, UnknownName
from ..mizuoto_runtime.text.checks import checked_text
from .declare import SPEAK_ID, engine_params, model_node_id, options_node_id, supplied_ports
from .wire import speak_options

FILE_PREFIX = "mizuoto/speech"
AUDIO_NODE = "4"


@dataclass(frozen=True, kw_only=True)
class SpeakBody:
    """What `POST speak` asks for.

    texts: further texts by input name (what a reference says). recordings: names of files in ComfyUI's input folder, by
    input name. options: parameters of the engine.
    """

    engine: str
    model: str
    text: str
    seed: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    recordings: Mapping[str, str] = field(default_factory=dict)


def speak_prompt(body: SpeakBody) -> dict[str, dict[str, object]]:
    """The workflow: model, options and recordings → Speak → a saved file. InputError says what can't be."""
    spec = engine_spec(body.engine)
    options = {name: _param_value(spec, name, value) for name, value in body.options.items()}
    nodes: dict[str, dict[str, object]] = {
        "1": _node(model_node_id(spec), model=body.model),
        "2": _node(options_node_id(spec), **options),
        AUDIO_NODE: _node("SaveAudio", filename_prefix=FILE_PREFIX, audio=["3", 0]),
    }
    wires: dict[str, object] = {"model": ["1", 0], "options": ["2", 0]}
    for number, (name, file_name) in enumerate(body.recordings.items(), 5):
        nodes[str(number)] = _node("LoadAudio", audio=_recording(spec, name, file_name))
        wires[name] = [str(number), 0]
    texts = {name: _text(spec, name, text) for name, text in body.texts.items()}
    given = {"text", *body.recordings, *(name for name, text in texts.items() if text)}
    speak_chain(spec, given, speak_options(spec, options).values)
    nodes["3"] = _node(SPEAK_ID, text=checked_text(body.text), seed=body.seed, **texts, **wires)
    return nodes


def _node(class_type: str, **inputs: object) -> dict[str, object]:
    return {"class_type": class_type, "inputs": inputs}


def _param_value(spec: EngineSpec, name: str, value: object) -> object:
    """The value as the Options node's widget has it."""
    params = {param.name: param for param in engine_params(spec)}
    if name not in params:
        raise UnknownName(f"option of {spec.label}", name, params)
    checked = params[name].check(value)
    return params[name].auto if checked is None else checked


def _recording(spec: EngineSpec, name: str, file_name: str) -> str:
    _check_port(spec, name, AUDIO)
    if not file_name or file_name != file_name.strip() or any(sign in file_name for sign in '/\\:[]\0'):
        raise InputError(f"recording {file_name!r} must be the plain name of a file in ComfyUI's input folder")
    return file_name


def _text(spec: EngineSpec, name: str, text: str) -> str:
    _check_port(spec, name, TEXT)
    return checked_text(text) if text.strip() else text


def _check_port(spec: EngineSpec, name: str, port_type: str) -> None:
    known = [port.name for port in supplied_ports(spec) if port.type == port_type]
    if name not in known:
        raise UnknownName(f"{port_type.lower()} input of {spec.label}", name, known)
