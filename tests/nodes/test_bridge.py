"""Sharing a device with ComfyUI: each scenario of the contract, on ComfyUI's real memory management."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from devtools.tree import Tree
from tests.nodes.bridge.members import members, missing

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "bridge"
MODULES = ("alone", "edges", "shared", "executor", "contract", "workload")
NUMBERS = range(1, 23)
PROBED = {"get_ram_usage", "is_dynamic", "patcher", "get_models", "model_size", "loaded_size"}
"""What ComfyUI's caches ask outputs for, to learn what they weigh and which models they bring."""
TIMEOUT_S = 240


def listed(module: str) -> list[str]:
    """The scenarios of a module, which can be imported inside ComfyUI only."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("scenario_")]


SCENARIOS = [name for module in MODULES for name in listed(module)]


def inside_comfyui(tree: Tree, module: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run `python -m module` with what ComfyUI needs on the path."""
    path = os.pathsep.join(filter(None, (str(tree.packages), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def outcomes(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, str]]:
    """What became of each scenario; all of them run in one process beside this one."""
    base = tmp_path_factory.mktemp("bridge")
    results = base / "results.json"
    arguments = [str(tree.root), str(base), str(results), *MODULES]
    done = inside_comfyui(tree, "tests.nodes.bridge.launch", arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, dict[str, str]] = json.loads(results.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, outcomes: Mapping[str, Mapping[str, str]], tree: Tree) -> None:
    outcome = outcomes[name]
    if outcome["state"] == "skipped":
        pytest.skip(f"ComfyUI {tree.version}: {outcome['why']}")
    assert outcome["state"] == "passed", outcome["why"]


def test_every_scenario_of_the_contract_is_there() -> None:
    numbers = {int(number) for name in SCENARIOS for number in re.findall(r"scenario_(\d+)", name)}
    assert numbers == set(NUMBERS)


def test_what_travels_on_wires_is_not_taken_for_a_model(pack_module: Callable[[str], ModuleType]) -> None:
    types, wire = pack_module("mizuoto_runtime.types"), pack_module("nodes.wire")
    for kind in (types.ModelRef, types.Artifact, wire.SpeakOptions):
        assert not PROBED & set(dir(kind)), kind


SOURCE = """
class LoadedModel:
    def __init__(self, model):
        self.device = model.load_device

    @property
    def model(self):
        return self._model()

    def grow(self):
        self.model.in_the_class()

def walked():
    for entry in current_loaded_models:
        model = entry.model
        if model is not None:
            yield model

def load_models_gpu(models, force=False):
    chosen = {}
    for each in models:
        chosen[each] = None
    for each in list(chosen):
        each.of_a_parameter()
    to_load = [LoadedModel(each) for each in models]
    for loaded in to_load:
        loaded.model.of_an_entry(loaded.device)
    for each in walked():
        each.of_a_generator()
    current_loaded_models.pop(0).model.of_a_popped_one
    other = something.model
    other.of_something_else()
"""


def test_a_member_that_a_new_comfyui_touches_is_named() -> None:
    found = members(SOURCE)
    expected = {"in_the_class", "of_a_parameter", "of_an_entry", "of_a_generator", "of_a_popped_one", "load_device"}
    assert found == expected
    assert missing(SimpleNamespace(load_device=None, in_the_class=None), {"file.py": found}) == {
        "file.py": expected - {"load_device", "in_the_class"}
    }
