"""What goes into a phase and comes out of it, checked against the phase's declared ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from ..errors import InputError, NotFinite, UnknownName
from ..nn.finite import is_finite
from ..text.checks import checked_text
from ..types import Artifact, Audio, PhaseReport
from .spec import AUDIO, MODEL, TEXT, EngineSpec, Phase, Port

if TYPE_CHECKING:
    from torch import Tensor


def port_values(spec: EngineSpec, phase: Phase, inputs: Mapping[str, object]) -> dict[str, object]:
    """The bare value of every input port but the model, None for an optional one that isn't connected, or blank."""
    ports = {port.name: port for port in phase.takes if port.type != MODEL}
    for name in inputs:
        if name not in ports:
            raise UnknownName(f"input of phase {phase.id!r}", name, ports)
    return {name: _value(spec, phase, port, inputs.get(name)) for name, port in ports.items()}


def reports_of(inputs: Mapping[str, object]) -> tuple[PhaseReport, ...]:
    """The reports that came with the inputs, each once."""
    found = [report for value in inputs.values() if isinstance(value, Artifact) for report in value.reports]
    return tuple({id(report): report for report in found}.values())


def check_finite(spec: EngineSpec, phase: Phase, result: object) -> None:
    """NotFinite if a phase's result, its audio or what the next phase takes, holds values that aren't finite."""
    for values, kind in _computed(result):
        if not is_finite(values):
            wrong = values.numel() - int(values.isfinite().sum())
            raise NotFinite(f"{spec.label} {phase.label}: {wrong:,} of {values.numel():,} {kind}")


def _computed(value: object, kind: str = "values") -> Iterator[tuple[Tensor, str]]:
    """The floating-point tensors in it, at any depth of tuples and dataclasses, and what they are."""
    from torch import Tensor

    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value, kind
    elif isinstance(value, tuple):
        for part in value:
            yield from _computed(part, kind)
    elif is_dataclass(value):
        inner = "samples" if isinstance(value, Audio) else kind
        for field in fields(value):
            yield from _computed(getattr(value, field.name), inner)


def artifacts(
    spec: EngineSpec, phase: Phase, result: object, reports: tuple[PhaseReport, ...]
) -> tuple[Artifact, ...]:
    """One artifact per output port. `result` is the phase function's: a tuple if there are several outputs."""
    values = result if len(phase.gives) > 1 else (result,)
    if not isinstance(values, tuple) or len(values) != len(phase.gives):
        raise TypeError(f"phase {phase.id!r} of {spec.id!r} must return {len(phase.gives)} values")
    return tuple(
        Artifact(spec.type_name(port.type), value, reports) for port, value in zip(phase.gives, values, strict=True)
    )


def _value(spec: EngineSpec, phase: Phase, port: Port, value: object) -> object:
    if value is None or (port.optional and isinstance(value, str) and not value.strip()):
        if port.optional:
            return None
        raise InputError(f"{spec.label} {phase.label} needs the input {port.name!r}: {port.tooltip}")
    if port.type == TEXT:
        return checked_text(value)
    if isinstance(value, Artifact) and value.type == spec.type_name(port.type):
        return value.value
    if isinstance(value, Audio) and port.type == AUDIO:
        if value.samples.ndim == 3 and not port.batch:
            raise InputError(f"input {port.name!r} of {spec.label} {phase.label} takes a single recording, no batch")
        return value
    given = value.type if isinstance(value, Artifact) else type(value).__name__
    raise InputError(f"input {port.name!r} of {spec.label} {phase.label} takes {port.type}, not {given}")
