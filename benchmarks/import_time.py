"""What the pack adds to ComfyUI's start: the time to import it and list its nodes, beside ComfyUI's own modules.

    python benchmarks/import_time.py [ComfyUI folder]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
ROUNDS = 5

MEASURE = """
import asyncio, importlib.util, json, pathlib, sys, time
root, comfyui = map(pathlib.Path, sys.argv[1:3])
sys.path.insert(0, str(comfyui))
sys.argv = ["main.py", "--cpu"]
began_s = time.perf_counter()
import comfy.options
comfy.options.enable_args_parsing()
import nodes, comfy_api.latest, folder_paths
host_s = time.perf_counter() - began_s
count = len(sys.modules)
began_s = time.perf_counter()
spec = importlib.util.spec_from_file_location("pack", root / "__init__.py")
module = importlib.util.module_from_spec(spec)
sys.modules["pack"] = module
spec.loader.exec_module(module)
async def listed():
    extension = await module.comfy_entrypoint()
    return [node.GET_SCHEMA().node_id for node in await extension.get_node_list()]
nodes = len(asyncio.run(listed()))
pack_s = time.perf_counter() - began_s
print(json.dumps({"host_s": host_s, "pack_s": pack_s, "modules": len(sys.modules) - count, "nodes": nodes}))
"""


def main() -> None:
    from devtools.tree import find_tree

    tree = find_tree(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    environment = {**os.environ, "PYTHONPATH": str(tree.packages)}
    rounds = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", MEASURE, str(ROOT), str(tree.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        rounds.append(json.loads(done.stdout.splitlines()[-1]))
    pack_s = statistics.median(each["pack_s"] for each in rounds)
    host_s = statistics.median(each["host_s"] for each in rounds)
    print(f"ComfyUI {tree.version}, median of {ROUNDS}: {rounds[0]['nodes']} nodes, {rounds[0]['modules']} modules")
    print(f"pack {pack_s:.3f} s, ComfyUI's own modules {host_s:.3f} s, ratio {pack_s / host_s:.4f}")


if __name__ == "__main__":
    main()
