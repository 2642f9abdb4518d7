"""Which models are on this machine, and where: every root of models is searched, the first one wins."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .engines.spec import EngineSpec, Phase, Variant
from .errors import InputError, ModelNotFound, UnknownName
from .settings import Settings
from .types import ModelRef

MAX_DEPTH = 4
LEVELS_AROUND = MAX_DEPTH + 1
"""How far above a model something may lie that it shares with others: up to the folder of all models."""
PACK = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class ModelFiles:
    """Where a model lies.

    path: its file or folder; None for a model that is built in. companions: what the names of further files end in.
    around: names of files and folders above it that it may share with other models.
    """

    ref: ModelRef
    path: Path | None
    variant: Variant | None = None
    companions: tuple[str, ...] = ()
    around: tuple[str, ...] = ()

    def identity(self) -> tuple[tuple[str, int, int], ...]:
        """Changes when one of the model's files is replaced: the path, size in bytes and time in ns of each."""
        return tuple(_identity(path) for path in self._files())

    def _files(self) -> list[Path]:
        if self.path is None:
            return []
        if self.path.is_dir():
            above = list(self.path.parents)[:LEVELS_AROUND]
            shared = [place / name for place in above for name in self.around]
            return [each for path in (self.path, *shared) for each in _files_at(path)]
        return [self.path, *(self.path.with_name(self.path.name + companion) for companion in self.companions)]


def _files_at(path: Path) -> list[Path]:
    """The file at `path`, or all that aren't hidden in a folder there; none if there is neither."""
    if not path.is_dir():
        return [path] if path.is_file() else []
    return sorted(each for each in path.rglob("*") if each.is_file() and not _is_hidden(each, path))


def _identity(path: Path) -> tuple[str, int, int]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return str(path), -1, -1
    return str(path), stat.st_size, stat.st_mtime_ns


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def default_root() -> Path:
    return Path.home() / ".mizuoto" / "models"


def roots_from(settings: Settings) -> tuple[Path, ...]:
    """The roots that `paths.models` names, else the default one."""
    named = settings.text("paths.models")
    if not named:
        return (default_root(),)
    return tuple(Path(part).expanduser() for part in named.split(os.pathsep) if part)


class ModelLibrary:
    """The installed models of all engines, below `<root>/<engine id>/` of each root. Reads the disk on every call."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)

    def folder(self, spec: EngineSpec) -> Path:
        """Where a model of the engine is to be put."""
        return self.roots[0] / spec.id

    def installed(self, spec: EngineSpec) -> dict[str, Path | None]:
        """Name → path of every installed model. Names are relative, with forward slashes, and stable."""
        if spec.layout.kind == "builtin":
            return {variant.id: None for variant in spec.variants}
        found: dict[str, Path | None] = {}
        for root in self.roots:
            folder = root / spec.id
            for path in _models_below(folder, spec):
                found.setdefault(_name(folder, path, spec), path)
        return dict(sorted(found.items()))

    def known(self, spec: EngineSpec) -> tuple[str, ...]:
        """Every name that a menu offers: installed ones and published ones."""
        return tuple(sorted({*self.installed(spec), *(variant.id for variant in spec.variants)}))

    def find(self, spec: EngineSpec, name: str) -> ModelFiles:
        """The model called `name`; ModelNotFound says where to put it, UnknownName lists the known ones."""
        installed = self.installed(spec)
        variant = next((variant for variant in spec.variants if variant.id == name), None)
        if name in installed:
            return ModelFiles(ModelRef(spec.id, name), installed[name], variant, *_further(spec))
        if variant is None:
            raise UnknownName(f"{spec.label} model", name, self.known(spec))
        command = f", or run in {PACK}: {self._fetch_command(spec, name)}" if variant.files else ""
        if variant.repository:
            raise ModelNotFound(
                f"the {spec.label} model {name!r} isn't installed. Download all files of {variant.repository} from "
                f"huggingface.co or modelscope.cn into {self.folder(spec) / name}{command}"
            )
        files = f"{_file_names(variant)} into {self.folder(spec)}"
        raise ModelNotFound(f"the {spec.label} model {name!r} isn't installed. Put {files}{command}")

    def identity_beside(self, spec: EngineSpec, phase: Phase, options: Mapping[str, object]) -> tuple[object, ...]:
        """Changes when a file changes that the phase reads with these options, beside any installed model's folder."""
        texts = {name: str(value) for name, value in options.items()}
        if any(set(text) & set("/\\\0") for text in texts.values()):
            return ()
        folders = sorted({path.parent for path in self.installed(spec).values() if path is not None})
        names = [name.format_map(texts) for name in phase.reads]
        return tuple(_identity(folder / name) for folder in folders for name in names)

    def _fetch_command(self, spec: EngineSpec, name: str) -> str:
        root = f"paths.models={self.roots[0]}"
        words = [sys.executable, "-m", "mizuoto_runtime", "models", "fetch", spec.id, name, "--setting", root]
        return " ".join(f'"{word}"' if " " in word else word for word in words)

    def at(self, spec: EngineSpec, path: Path) -> ModelFiles:
        """The model that lies at `path`, wherever that is: for callers who may name paths (the command line)."""
        if spec.layout.kind == "builtin":
            raise InputError(f"engine {spec.id!r} has no model files; its models are {', '.join(self.known(spec))}")
        resolved = path.expanduser().resolve()
        if not resolved.exists():
            raise ModelNotFound(f"there is no {spec.label} model at {path}")
        return ModelFiles(ModelRef(spec.id, str(resolved)), resolved, None, *_further(spec))


def _further(spec: EngineSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return spec.layout.companions, spec.layout.around


def _models_below(folder: Path, spec: EngineSpec) -> Iterator[Path]:
    for current, folders, files in os.walk(folder, followlinks=True):
        depth = len(Path(current).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < MAX_DEPTH else []
        if spec.layout.kind == "file":
            yield from (Path(current) / name for name in sorted(files) if _is_model(name, spec))
        elif fnmatch.filter(files, spec.layout.marker):
            folders[:] = []
            yield Path(current)


def _is_model(name: str, spec: EngineSpec) -> bool:
    return name.endswith(spec.layout.suffix) and not name.startswith(".")


def _name(folder: Path, path: Path, spec: EngineSpec) -> str:
    return path.relative_to(folder).as_posix().removesuffix(spec.layout.suffix)


def _file_names(variant: Variant) -> str:
    return " and ".join(file.path for file in variant.files)
