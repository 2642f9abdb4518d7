"""What ComfyUI pays for loading the pack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from devtools.tree import Tree

ROOT = Path(__file__).resolve().parent.parent.parent
MAX_IMPORT_SECONDS = 0.3
ATTEMPTS = 3  # a busy machine may be slow once
FORBIDDEN = ("transformers", "espeakng_loader", "safetensors.torch", "onnx", "onnxruntime", "piper", "scipy")
HEAVY_PARTS = (".phases", ".model", ".weights", ".generator", ".session", ".manager", ".handle")

LOAD = """
import asyncio, importlib.util, json, pathlib, sys, time
root = pathlib.Path(sys.argv[1])
if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
    sys.argv = ["main.py", "--cpu", "--base-directory", sys.argv[3]]
    import comfy.options
    comfy.options.enable_args_parsing()
    import nodes, comfy_api.latest, folder_paths
before = set(sys.modules)
began_s = time.perf_counter()
name = str(root).replace(".", "_x_")
spec = importlib.util.spec_from_file_location(name, root / "__init__.py")
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
spec.loader.exec_module(module)
ids = []
if len(sys.argv) > 2:
    async def listed():
        extension = await module.comfy_entrypoint()
        return [node.GET_SCHEMA().node_id for node in await extension.get_node_list()]
    ids = asyncio.run(listed())
seconds = time.perf_counter() - began_s
new = sorted(set(sys.modules) - before)
print(json.dumps({"seconds": seconds, "ids": ids, "new": [n.replace(name, "pack") for n in new],
                  "exports": [n for n in vars(module) if n.isupper()], "web": module.WEB_DIRECTORY}))
"""


def loaded(*arguments: str, env: Mapping[str, str] | None = None) -> dict:
    command = [sys.executable, "-c", LOAD, str(ROOT), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, env={**os.environ, **(env or {})}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_bare_import_loads_the_root_module_only() -> None:
    result = loaded()
    assert [name for name in result["new"] if name.startswith("pack")] == ["pack"]
    assert "torch" not in result["new"]
    assert result["seconds"] < MAX_IMPORT_SECONDS


def test_the_root_exports_what_comfyui_looks_for() -> None:
    result = loaded()
    assert result["exports"] == ["TYPE_CHECKING", "WEB_DIRECTORY"], "NODE_CLASS_MAPPINGS would hide comfy_entrypoint"
    assert (ROOT / result["web"] / "docs").is_dir()


@pytest.mark.server
def test_listing_the_nodes_inside_comfyui_is_quick_and_loads_no_engine_and_no_manager(
    tree: Tree, tmp_path: Path
) -> None:
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, (str(tree.packages), os.environ.get("PYTHONPATH"))))}
    seconds: list[float] = []
    while len(seconds) < ATTEMPTS and min(seconds, default=1e9) >= MAX_IMPORT_SECONDS:
        result = loaded(str(tree.root), str(tmp_path), env=environment)
        seconds.append(result["seconds"])
        assert {"MizuotoSpeak", "MizuotoPiperModel", "MizuotoDummyModel"} <= set(result["ids"])
        foreign = [name for name in result["new"] if name.split(".")[0] == "torch" or name.startswith(FORBIDDEN)]
        assert foreign == []
        heavy = [name for name in result["new"] if name.startswith("pack") and name.endswith(HEAVY_PARTS)]
        assert heavy == []
    assert min(seconds) < MAX_IMPORT_SECONDS, seconds
    assert not (tmp_path / "models" / "mizuoto").exists(), "importing makes no folder"
