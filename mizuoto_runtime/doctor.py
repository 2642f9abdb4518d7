"""What `doctor` looks at: settings, the policy that they make, devices, torch, folders, engines. Changes nothing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from . import __version__
from .engines.registry import all_engines
from .engines.spec import EngineSpec
from .errors import MissingDependency, MizuotoError
from .library import ModelLibrary, roots_from
from .memory.policy import ALLOCATOR_VARIABLES, ALLOCATORS
from .memory.report import ManagerFacts
from .settings import Settings

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Problem(TypedDict):
    """Something to be mended: `what` it is, and what to do `next`."""

    what: str
    next: str


def problem(what: object, next_step: str) -> Problem:
    return Problem(what=" ".join(str(what).split()), next=next_step)


def examine(
    settings: Settings, library: ModelLibrary, facts: ManagerFacts | None, known: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Everything as JSON types, sizes in bytes.

    facts: what `ModelManager.facts` knows, None if there can't be a manager. known: problems met on the way here.
    """
    torch_facts, torch_problems = _torch(settings)
    folders = [_folder(root) for root in library.roots]
    engines = [_engine(spec, library, settings) for spec in all_engines()]
    return {
        "version": __version__,
        "config_file": str(settings.config) if settings.config is not None else None,
        "settings": {
            name: {"value": list(value) if isinstance(value, tuple) else value, "source": settings.sources[name]}
            for name, value in settings.values.items()
        },
        "memory": facts,
        "torch": torch_facts,
        "python": _python(),
        "model_folders": folders,
        "engines": engines,
        "problems": [
            *known,
            *torch_problems,
            *(_device_problems(settings, facts) if facts is not None else ()),
            *_folder_problems(settings, folders),
            *(found for engine in engines for found in _engine_problems(engine)),
        ],
    }


def _python() -> dict[str, Any]:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "usable_cpus": affinity,
        "thread_variables": _variables(THREAD_VARIABLES),
    }


def _variables(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _torch(settings: Settings) -> tuple[dict[str, Any] | None, list[Problem]]:
    """torch's build and allocator as they are, and what stands in the way of the one that is wanted."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return None, [problem(f"torch can't be imported: {error}", "install the torch that this machine can run")]
    variables = _variables(ALLOCATOR_VARIABLES)
    wanted = settings.text("compute.cuda_allocator")
    found = []
    if wanted != "auto" and variables and ALLOCATORS.get(wanted) not in variables.values():
        names = " and ".join(variables)
        what = f"compute.cuda_allocator={wanted} has no effect: {names} is set and wins"
        found.append(problem(what, f"unset {names}, or set compute.cuda_allocator to auto"))
    build = {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "xpu": torch.version.xpu,
        "mps": torch.backends.mps.is_available(),
        "allocator_backend": torch.cuda.get_allocator_backend() if torch.cuda.is_available() else None,
        "allocator_variables": variables,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }
    return build, found


def _device_problems(settings: Settings, facts: ManagerFacts) -> list[Problem]:
    found = [
        problem(f"{device['name']} can't be asked: {device['error']}", "check the driver, or choose compute.device")
        for device in facts["devices"]
        if device["error"]
    ]
    total = facts["devices"][0]["total_bytes"]
    reserve = facts["reserve_bytes"]
    if total is not None and not facts["shares_device"] and reserve >= total:
        what = f"compute.vram_reserve_mb leaves nothing of {facts['device']}: {reserve:,} of {total:,} bytes"
        found.append(problem(what, "lower compute.vram_reserve_mb; until then nothing but the minimum is placed"))
    if settings.integer("compute.simulate_vram_mb"):
        what = "compute.simulate_vram_mb is on: the CPU plays a device, which is for tests only"
        found.append(problem(what, f"take it out of {settings.sources['compute.simulate_vram_mb']}"))
    return found


def _folder(path: Path) -> dict[str, Any]:
    exists = path.is_dir()
    below = ModelLibrary([path])
    return {
        "path": str(path),
        "exists": exists,
        "writable": exists and os.access(path, os.W_OK | os.X_OK),
        "models": sum(len(below.installed(spec)) for spec in all_engines() if spec.layout.kind != "builtin"),
    }


def _folder_problems(settings: Settings, folders: Sequence[dict[str, Any]]) -> list[Problem]:
    """A folder that was named must be there; the first one takes what is fetched. The default one is made then."""
    found = []
    if settings.text("paths.models"):
        source = settings.sources["paths.models"]
        found = [
            problem(f"there is no folder {folder['path']}", f"make it, or correct paths.models in {source}")
            for folder in folders
            if not folder["exists"]
        ]
    first = folders[0]
    if first["exists"] and not first["writable"]:
        found.append(problem(f"{first['path']} can't be written to", "give this user the right, or fetch elsewhere"))
    return found


def _engine(spec: EngineSpec, library: ModelLibrary, settings: Settings) -> dict[str, Any]:
    installed = library.installed(spec)
    pinned = settings.names(f"engines.{spec.id}.pinned_models")
    known = library.known(spec)
    absent = [variant for variant in spec.variants if variant.id not in installed]
    return {
        "id": spec.id,
        "label": spec.label,
        "installed": list(installed),
        "fetchable": sorted(variant.id for variant in absent if variant.files),
        "by_hand": sorted(variant.id for variant in absent if not variant.files),
        "missing": _missing(spec),
        "pinned": list(pinned),
        "pinned_unknown": [name for name in pinned if name not in known],
    }


def _missing(spec: EngineSpec) -> list[dict[str, str]]:
    missing = []
    for requirement in spec.requirements:
        try:
            requirement.check()
        except MissingDependency as error:
            missing.append({"package": requirement.package, "purpose": requirement.purpose, "why": str(error)})
    return missing


def _engine_problems(engine: dict[str, Any]) -> list[Problem]:
    found = [
        problem(f"{engine['label']} lacks {item['package']} for {item['purpose']}", item["why"])
        for item in engine["missing"]
    ]
    for name in engine["pinned_unknown"]:
        what = f"engines.{engine['id']}.pinned_models names {name!r}, which is no {engine['label']} model"
        found.append(problem(what, f"see: python -m mizuoto_runtime models list {engine['id']}"))
    return found


def gather(settings: Settings, known: Sequence[Problem] = ()) -> dict[str, Any]:
    """As `examine`, with the manager that a session of these settings would have."""
    library = ModelLibrary(roots_from(settings))
    problems = list(known)
    try:
        from .memory.device import present
        from .session import Session

        facts = Session(settings, library).manager.facts(present())
    except (ImportError, OSError):  # torch isn't there or can't be loaded; examine() says so
        facts = None
    except MizuotoError as error:
        facts = None
        problems.append(problem(error, f"correct compute.device in {settings.sources['compute.device']}"))
    return examine(settings, library, facts, problems)
