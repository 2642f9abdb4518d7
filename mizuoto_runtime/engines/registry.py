"""The engines there are. A new engine is a folder beside this file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from ..errors import UnknownName
from .spec import EngineSpec

ENGINES = ("piper", "qwen3tts", "f5tts", "voxcpm", "omnivoice", "dummy")


class Engines:
    """Engines by id, each a package with the modules `spec` and `phases`. packages: their absolute names by id."""

    def __init__(self, packages: Mapping[str, str]) -> None:
        self._packages = dict(packages)
        self._specs: dict[str, EngineSpec] = {}

    def spec(self, engine_id: str) -> EngineSpec:
        """The declaration of an engine; UnknownName lists the known ones."""
        if engine_id not in self._packages:
            raise UnknownName("engine", engine_id, self._packages)
        if engine_id not in self._specs:
            self._specs[engine_id] = import_module(f"{self._packages[engine_id]}.spec").SPEC
        return self._specs[engine_id]

    def all(self) -> tuple[EngineSpec, ...]:
        return tuple(self.spec(engine_id) for engine_id in self._packages)

    def module(self, spec: EngineSpec) -> ModuleType:
        """The module with the engine's functions; importing it brings torch."""
        return import_module(f"{self._packages[spec.id]}.phases")


BUILT_IN = Engines({engine_id: f"{__package__}.{engine_id}" for engine_id in ENGINES})


def engine_spec(engine_id: str) -> EngineSpec:
    """The declaration of an engine of this pack; UnknownName lists the known ones."""
    return BUILT_IN.spec(engine_id)


def all_engines() -> tuple[EngineSpec, ...]:
    return BUILT_IN.all()


def engine_module(spec: EngineSpec) -> ModuleType:
    """The module with the functions of an engine of this pack; importing it brings torch."""
    return BUILT_IN.module(spec)
