"""The engines there are. A new engine is a folder beside this file and one line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

from ..errors import UnknownName
from .spec import EngineSpec

ENGINES = ("piper", "dummy")


@cache
def engine_spec(engine_id: str) -> EngineSpec:
    """The declaration of an engine; UnknownName lists the known ones."""
    if engine_id not in ENGINES:
        raise UnknownName("engine", engine_id, ENGINES)
    spec: EngineSpec = import_module(f".{engine_id}.spec", __package__).SPEC
    return spec


def all_engines() -> tuple[EngineSpec, ...]:
    return tuple(engine_spec(engine_id) for engine_id in ENGINES)


def engine_module(spec: EngineSpec) -> ModuleType:
    """The module with the engine's functions; importing it brings torch."""
    return import_module(f".{spec.id}.phases", __package__)
