"""Sharing a device with ComfyUI: each scenario of the contract, on ComfyUI's real memory management."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devtools.tree import Tree

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "bridge"
MODULES = ("alone", "edges", "shared", "executor")
NUMBERS = range(1, 23)
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
    numbers = {int(re.findall(r"\d+", name)[0]) for name in SCENARIOS}
    assert numbers == set(NUMBERS)
