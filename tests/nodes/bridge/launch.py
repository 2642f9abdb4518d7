"""Runs scenarios inside ComfyUI's own modules, in a process of their own: `launch.py COMFYUI BASE RESULTS MODULE…`.

ComfyUI is set up as its main.py does it, with `--cpu`. RESULTS is written as JSON: what became of each scenario.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
PACK = "pack_in_comfyui"
RUNTIME = "mizuoto_runtime"
PREFIX = "scenario_"


class NotInThisVersion(Exception):
    """What the scenario is about isn't there in this ComfyUI."""


class _Same(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`mizuoto_runtime` is the pack's own, not a second copy of it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name.split(".")[0] == RUNTIME else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{PACK}.{spec.name}")
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own


def start_comfyui(root: Path, base: Path, *arguments: str) -> None:
    """Import ComfyUI from `root` as its own start does, and this pack as a custom node of it."""
    sys.path.insert(0, str(root))
    sys.argv = ["main.py", "--cpu", "--base-directory", str(base), *arguments]
    options = importlib.import_module("comfy.options")
    options.enable_args_parsing()
    for name in ("utils.extra_config", "comfy.model_management", "folder_paths", "nodes", "execution", "server"):
        importlib.import_module(name)
    sys.path.insert(0, str(ROOT))
    spec = importlib.util.spec_from_file_location(PACK, ROOT / "__init__.py")
    assert spec is not None and spec.loader is not None
    sys.modules[PACK] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PACK])
    sys.meta_path.insert(0, _Same())


def scenarios(module: ModuleType) -> Iterator[tuple[str, object]]:
    yield from ((name, value) for name, value in vars(module).items() if name.startswith(PREFIX))


def outcome(scenario: object) -> dict[str, str]:
    """`state`: passed, skipped or failed; `why`: the reason, or the traceback."""
    assert callable(scenario)
    try:
        scenario()
    except NotInThisVersion as reason:
        return {"state": "skipped", "why": str(reason)}
    except BaseException:  # newer ComfyUI's interrupt isn't an Exception
        return {"state": "failed", "why": traceback.format_exc()}
    return {"state": "passed", "why": ""}


def main(comfyui: str, base: str, results: str, *modules: str) -> None:
    start_comfyui(Path(comfyui), Path(base))
    found = {
        name: outcome(scenario)
        for module in modules
        for name, scenario in scenarios(importlib.import_module(f"tests.nodes.bridge.{module}"))
    }
    Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    importlib.import_module("tests.nodes.bridge.launch").main(*sys.argv[1:])
