"""How an engine is declared: once, as frozen data, importable without torch.

Nodes, command-line help, documentation tables and validation are all derived from these declarations. The functions
that do the work stand in `phases.py` beside the declaration, imported when the engine is first used:

    load(files: ModelFiles, loader: Loader) -> model
    <phase id>(ctx: PhaseContext, model, *, <a keyword per port and parameter>) -> value, a tuple if several
    memory_required(model, **inputs) -> int        # bytes; only if the engine isn't phased
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from ..errors import InputError, MissingDependency, UnknownName
from ..types import Kind

ParamKind = Literal["text", "int", "float", "bool", "choice"]

MODEL = "MODEL"
TEXT = "TEXT"
AUDIO = "AUDIO"
SHARED_TYPES = frozenset({TEXT, AUDIO})


@dataclass(frozen=True, kw_only=True)
class Param:
    """A value that a phase takes besides its ports: a widget in the node, `--option name=value` on the command line.

    `auto` is the one value outside `low` … `high` that means "as the model says"; the phase function receives None for
    it, and it is the default of the parameters that have one.
    """

    name: str
    kind: ParamKind
    default: object
    tooltip: str
    label: str = ""
    low: float | None = None
    high: float | None = None
    step: float | None = None
    unit: str = ""
    auto: float | str | None = None
    choices: tuple[str, ...] = ()
    advanced: bool = False

    def check(self, value: object) -> object:
        """Return `value` in this parameter's type, None where it is `auto`; InputError says what is allowed."""
        if value is None or (self.auto is not None and value == self.auto):
            if self.auto is None:
                raise InputError(f"option {self.name!r} needs a value; {self._range()}")
            return None
        if self.kind in ("int", "float"):
            return self._number(value)
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise InputError(f"option {self.name!r} is {value!r}; it must be true or false")
            return value
        if self.kind == "choice":
            chosen = self._choice(value)
            return None if chosen == self.auto else chosen
        if not isinstance(value, str):
            raise InputError(f"option {self.name!r} is {value!r}; it must be a text")
        return value

    def _choice(self, value: object) -> str:
        """The choice that `value` is in any letter case; true and false stand for the choices of these names."""
        folded = str(value).casefold()
        if isinstance(value, (str, bool)):
            for choice in self.choices:
                if choice.casefold() == folded:
                    return choice
        raise UnknownName(f"value of option {self.name!r}", value, self.choices)

    def _number(self, value: object) -> int | float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"option {self.name!r} is {value!r}; it isn't a number; {self._range()}")
        inside = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        if not inside or not math.isfinite(value) or (self.kind == "int" and value != int(value)):
            raise InputError(f"option {self.name!r} is {_short(value)}; {self._range()}")
        return int(value) if self.kind == "int" else float(value)

    def _range(self) -> str:
        whole = "a whole number " if self.kind == "int" else ""
        unit = f" {self.unit}" if self.unit else ""
        auto = f", or {self.auto!r} for the model's own" if self.auto is not None else ""
        if self.low is None and self.high is None:
            return f"it must be {whole or 'set'}{auto}".rstrip()
        return f"it must be {whole}from {self.low:g} to {self.high:g}{unit}{auto}"


def _short(value: float) -> str:
    digits = repr(value)
    return digits if len(digits) <= 24 else f"{digits[:12]}… ({len(digits)} digits)"


@dataclass(frozen=True, kw_only=True)
class Port:
    """A typed input or output of a phase. Types other than TEXT and AUDIO belong to the engine that names them.

    batch: whether an AUDIO with several recordings may come, as (clips, channels, length).
    """

    name: str
    type: str
    tooltip: str
    label: str = ""
    optional: bool = False
    batch: bool = False


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One step of a request that is cached, cancelled and placed on its own.

    `when` names the request's inputs or options whose presence chooses this phase among several that give the same
    type (a voice made from audio, from a preset or from a description); empty: chosen by default.
    `reads` names files beside a model's folder that the phase reads, with its options in braces, as voices/{name}.json.
    """

    id: str
    label: str
    tooltip: str
    takes: tuple[Port, ...]
    gives: tuple[Port, ...]
    params: tuple[Param, ...] = ()
    seeded: bool = False
    when: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    def param(self, name: str) -> Param:
        for param in self.params:
            if param.name == name:
                return param
        raise UnknownName(f"option of phase {self.id!r}", name, [param.name for param in self.params])

    def check(self, options: Mapping[str, object]) -> dict[str, object]:
        """Every parameter of the phase with its checked value: the given one, else the default."""
        for name in options:
            self.param(name)
        return {param.name: param.check(options.get(param.name, param.default)) for param in self.params}


@dataclass(frozen=True, kw_only=True)
class Component:
    """A part of the model that is placed on its own. `sequence`: runs once per token; `oneshot`: once per input."""

    name: str
    kind: Kind
    tooltip: str


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One file of a model: its path inside the model, and where it comes from."""

    path: str
    url: str
    size_bytes: int
    sha256: str = ""
    md5: str = ""


RESTRICTING = re.compile(r"\bNC\b|research|non-?commercial|bilibili", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A published model of the engine. `id` is also the name under which it is installed, so that menus stay stable.

    files: what `models fetch` downloads. repository: where to get the model by hand, if it is a folder.
    """

    id: str
    label: str
    licence: str
    languages: tuple[str, ...] = ()
    files: tuple[ModelFile, ...] = ()
    repository: str = ""

    @property
    def restricts(self) -> bool:
        """Whether the licence is known to forbid some uses, as commercial ones."""
        return RESTRICTING.search(self.licence) is not None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How an installed model looks below `<models root>/<engine id>/`.

    `file`: each file that ends in `suffix` is a model, with companions named `<file><companion>`.
    `folder`: each folder that holds a file whose name fits `marker`, with * for any characters, is a model.
    It may share what `around` names, files or folders, with others: beside it, or beside one of the folders around it.
    `builtin`: nothing is installed; the variants are all there is.
    """

    kind: Literal["file", "folder", "builtin"]
    suffix: str = ""
    companions: tuple[str, ...] = ()
    marker: str = ""
    around: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an engine can do, for menus and tables. Languages are BCP 47 tags."""

    clone: bool = False
    preset_voices: bool = False
    description: bool = False
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A package that the engine needs beside what ComfyUI brings.

    check: raises MissingDependency, which says how to get it, if it isn't there or not whole; imports nothing heavy.
    """

    package: str
    purpose: str
    check: Callable[[], object]


def package(name: str, *, purpose: str, module: str = "") -> Requirement:
    """That a package is installed. module: what it is imported as, if that isn't its name."""

    def check() -> None:
        if find_spec(module or name) is None:
            raise MissingDependency(f"the package {name} isn't installed: pip install {name.lower()}")

    return Requirement(package=name, purpose=purpose, check=check)


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """The whole declaration of an engine."""

    id: str
    label: str
    description: str
    licence: str
    layout: Layout
    components: tuple[Component, ...]
    phases: tuple[Phase, ...]
    phased: bool
    capabilities: Capabilities = field(default_factory=Capabilities)
    variants: tuple[Variant, ...] = ()
    requirements: tuple[Requirement, ...] = ()

    def phase(self, phase_id: str) -> Phase:
        for phase in self.phases:
            if phase.id == phase_id:
                return phase
        raise UnknownName(f"phase of engine {self.id!r}", phase_id, [phase.id for phase in self.phases])

    def component(self, name: str) -> Component:
        for component in self.components:
            if component.name == name:
                return component
        raise UnknownName(f"component of engine {self.id!r}", name, [part.name for part in self.components])

    def type_name(self, port_type: str) -> str:
        """The type as others see it: shared ones as they are, the engine's own with its name before them."""
        return port_type if port_type in SHARED_TYPES else f"MIZUOTO_{self.id.upper()}_{port_type}"
