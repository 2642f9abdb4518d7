"""An engine's declaration as JSON types and as a table, for the command line, HTTP and the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .engines.spec import EngineSpec, Param, Phase, Port
from .library import ModelLibrary


def describe(spec: EngineSpec, library: ModelLibrary) -> dict[str, Any]:
    """Everything that an engine declares, and which of its models are installed."""
    installed = library.installed(spec)
    return {
        "id": spec.id,
        "label": spec.label,
        "description": spec.description,
        "licence": spec.licence,
        "phased": spec.phased,
        "capabilities": {
            "clone": spec.capabilities.clone,
            "preset_voices": spec.capabilities.preset_voices,
            "description": spec.capabilities.description,
            "languages": list(spec.capabilities.languages),
        },
        "components": [{"name": part.name, "kind": part.kind, "tooltip": part.tooltip} for part in spec.components],
        "phases": [_phase(spec, phase) for phase in spec.phases],
        "models": [_model(spec, name, name in installed) for name in library.known(spec)],
    }


def _model(spec: EngineSpec, name: str, installed: bool) -> dict[str, Any]:
    """A model: whether it can be fetched, what that takes in bytes, and whether its licence has to be accepted."""
    variant = next((variant for variant in spec.variants if variant.id == name), None)
    return {
        "id": name,
        "installed": installed,
        "fetchable": variant is not None and bool(variant.files),
        "size_bytes": sum(file.size_bytes for file in variant.files) if variant is not None else 0,
        "licence": variant.licence if variant is not None else "",
        "restricts": variant is not None and variant.restricts,
    }


def table(described: Sequence[Mapping[str, Any]]) -> str:
    """A few lines for each engine: what it is, its phases and options, its models."""
    return "\n\n".join(_lines(engine) for engine in described)


def _phase(spec: EngineSpec, phase: Phase) -> dict[str, Any]:
    return {
        "id": phase.id,
        "label": phase.label,
        "takes": [_port(spec, port) for port in phase.takes],
        "gives": [_port(spec, port) for port in phase.gives],
        "options": [_param(param) for param in phase.params],
        "seeded": phase.seeded,
    }


def _port(spec: EngineSpec, port: Port) -> dict[str, Any]:
    return {
        "name": port.name,
        "type": spec.type_name(port.type),
        "optional": port.optional,
        "tooltip": port.tooltip,
    }


def _param(param: Param) -> dict[str, Any]:
    limits = {"low": param.low, "high": param.high, "unit": param.unit, "auto": param.auto}
    choices = {"choices": list(param.choices)} if param.choices else {}
    given = {key: value for key, value in limits.items() if value not in (None, "")}
    base = {"name": param.name, "kind": param.kind, "default": param.default, "tooltip": param.tooltip}
    return {**base, **given, **choices}


def _lines(engine: Mapping[str, Any]) -> str:
    installed = [model["id"] for model in engine["models"] if model["installed"]]
    others = len(engine["models"]) - len(installed)
    lines = [f"{engine['id']}: {engine['description']} ({engine['licence']})"]
    lines.append("  phases: " + " → ".join(phase["id"] for phase in engine["phases"]))
    for phase in engine["phases"]:
        for option in phase["options"]:
            lines.append(f"  {phase['id']}.{option['name']} = {option['default']!r}  {option['tooltip']}")
    lines.append(f"  models installed: {', '.join(installed) or 'none'}; {others} more are published")
    return "\n".join(lines)
