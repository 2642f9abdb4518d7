"""Which phases make speech out of what a request supplies, in order: `Speak` and the command line both follow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..errors import InputError, UnknownName
from .spec import AUDIO, MODEL, SHARED_TYPES, EngineSpec, Phase, Port


@dataclass(frozen=True)
class Step:
    """A phase to run. `links`: port name → (id of the phase that makes its value, index of the output)."""

    phase: Phase
    links: Mapping[str, tuple[str, int]]

    def inputs(self, supplied: Mapping[str, object], made: Mapping[str, Sequence[object]]) -> dict[str, object]:
        """The phase's inputs: supplied ones by port name, the others out of what phases before it `made`."""
        names = {port.name for port in self.phase.takes}
        linked = {name: made[phase_id][index] for name, (phase_id, index) in self.links.items()}
        return {name: value for name, value in supplied.items() if name in names} | linked

    def options(self, options: Mapping[str, object]) -> dict[str, object]:
        """Those of `options` that are parameters of this phase."""
        known = {param.name for param in self.phase.params}
        return {name: value for name, value in options.items() if name in known}


def speak_chain(spec: EngineSpec, inputs: Collection[str], options: Mapping[str, object]) -> tuple[Step, ...]:
    """The phases from a request to audio, in running order.

    inputs: names of the ports that the request fills. options: the request's parameters by name; one that is set to
    something else than its default chooses the phase that has it. InputError names what is missing if no phase can
    make audio, and the options that would have no effect.
    """
    chosen = _chosen(spec, options)
    steps: dict[str, Step] = {}
    missing: list[str] = []
    if _make(spec, AUDIO, frozenset(inputs) | chosen, steps, missing, ()) is None:
        wanted = ", ".join(dict.fromkeys(missing)) or "nothing that was given"
        raise InputError(f"engine {spec.id!r} can't make speech from this request; it also needs: {wanted}")
    _check_used(spec, steps, inputs, chosen)
    return tuple(steps.values())


def _check_used(spec: EngineSpec, steps: Mapping[str, Step], inputs: Collection[str], chosen: Collection[str]) -> None:
    ports = {port.name for step in steps.values() for port in step.phase.takes}
    params = {param.name for step in steps.values() for param in step.phase.params}
    idle = sorted({*inputs} - ports) + sorted({*chosen} - params)
    if idle:
        known = ", ".join(sorted(_given_ports(steps) | params))
        partners = sorted({name for each in idle for name in _partners(spec, each, inputs)})
        instead = f", or give {' or '.join(partners)} too" if partners else ""
        what = f"no use for {', '.join(idle)} in this request of engine {spec.id!r}"
        raise InputError(f"{what}; leave it out{instead}. It takes {known}")


def _given_ports(steps: Mapping[str, Step]) -> set[str]:
    """Ports that no phase before them fills."""
    return {
        port.name
        for step in steps.values()
        for port in step.phase.takes
        if port.type != MODEL and port.name not in step.links
    }


def _partners(spec: EngineSpec, name: str, inputs: Collection[str]) -> set[str]:
    """What chooses a phase that reads `name`, unless what that phase makes is given already."""
    given = {port.type for phase in spec.phases for port in phase.takes if port.name in inputs}
    reading = [phase for phase in spec.phases if name in _names(phase)]
    making = [phase for phase in reading if given.isdisjoint(port.type for port in phase.gives)]
    return {other for phase in making for other in phase.when} - {name, *inputs}


def _names(phase: Phase) -> set[str]:
    return {port.name for port in phase.takes} | {param.name for param in phase.params}


def _chosen(spec: EngineSpec, options: Mapping[str, object]) -> frozenset[str]:
    params = {param.name: param for phase in spec.phases for param in phase.params}
    for name in options:
        if name not in params:
            raise UnknownName(f"option of engine {spec.id!r}", name, params)
    return frozenset(name for name, value in options.items() if value != params[name].default)


def _make(
    spec: EngineSpec,
    type_: str,
    supplied: frozenset[str],
    steps: dict[str, Step],
    missing: list[str],
    above: tuple[str, ...],
) -> tuple[str, int] | None:
    for phase in _candidates(spec, type_, supplied):
        if phase.id in above:
            continue
        index = next(index for index, port in enumerate(phase.gives) if port.type == type_)
        if phase.id in steps:
            return phase.id, index
        made = dict(steps)
        links = _links(spec, phase, supplied, made, missing, (*above, phase.id))
        if links is not None:
            steps.update(made)
            steps[phase.id] = Step(phase, links)
            return phase.id, index
    return None


def _candidates(spec: EngineSpec, type_: str, supplied: frozenset[str]) -> list[Phase]:
    giving = [phase for phase in spec.phases if any(port.type == type_ for port in phase.gives)]
    chosen = [phase for phase in giving if supplied.intersection(phase.when)]
    return chosen + [phase for phase in giving if not phase.when]


def _links(
    spec: EngineSpec,
    phase: Phase,
    supplied: frozenset[str],
    steps: dict[str, Step],
    missing: list[str],
    above: tuple[str, ...],
) -> dict[str, tuple[str, int]] | None:
    links: dict[str, tuple[str, int]] = {}
    for port in phase.takes:
        if port.type == MODEL or port.name in supplied:
            continue
        shared = port.type in SHARED_TYPES
        source = None if shared else _make(spec, port.type, supplied, steps, missing, above)
        if source is not None:
            links[port.name] = source
        elif not port.optional:
            if shared or not _candidates(spec, port.type, supplied):
                missing.append(_need(spec, port))
            return None
    return links


def _need(spec: EngineSpec, port: Port) -> str:
    """A port's name, with what a request may give in its place."""
    giving = [phase for phase in spec.phases if any(given.type == port.type for given in phase.gives)]
    instead = [name for phase in giving for name in phase.when]
    return f"{port.name} (or {' or '.join(instead)})" if instead else port.name
