"""Speech beside ComfyUI's own models: bytes moved against an oracle's, and what a server's process grows by.

`python -m benchmarks.bridge` in an environment that holds ComfyUI's requirements (`dev.py test` makes one). It needs no
GPU: ComfyUI's real memory management works on a fake device, whose copies are real and whose size is a number.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, line, machine
from devtools.tree import Tree, find_tree

MB = 1e6
MOST_MOVED = 1.1
MOST_RSS_BYTES = 50_000
"""A prompt, over hundreds: ComfyUI itself keeps each in its history."""
CASES: dict[str, dict[str, Any]] = {
    "normal, 168 MB beside 2 × 97 MB": {"size": "large"},
    "dynamic model": {"dynamic": True},
    "--lowvram": {"vram_state": "LOW_VRAM"},
    "--novram": {"vram_state": "NO_VRAM"},
    "--highvram": {"vram_state": "HIGH_VRAM"},
}


def start_comfyui(tree: Tree, base: Path) -> None:
    from tests.nodes.bridge import launch

    sys.path.insert(0, str(tree.packages))
    launch.start_comfyui(tree.root, base)


def workloads(prompts: int) -> Iterator[Figure]:
    """ComfyUI must have been started in this process."""
    from tests.nodes.bridge import workload

    for name, options in CASES.items():
        began_s = time.perf_counter()
        result = workload.run(prompts, **options)
        moved = result.moved
        seconds = time.perf_counter() - began_s
        yield Figure(
            name=f"{name}: bytes moved / the oracle's",
            value=result.ratio,
            unit="x",
            at_most=MOST_MOVED,
            budget_bytes=result.budget_bytes,
            note=(
                f"{prompts} prompts in {seconds:.0f} s: ComfyUI's {moved.image_bytes / MB:,.0f} MB, speech "
                f"{moved.speech_bytes / MB:,.0f} MB and {result.streamed_mb:,.0f} MB streamed; the oracle "
                f"{result.by_rule_bytes / MB:,.0f} MB, without the tenth more {result.to_the_byte_bytes / MB:,.0f} MB"
            ),
        )
        yield Figure(name=f"{name}: outputs equal their solo runs", value=result.exact, unit="", at_least=1)


def growth(tree: Tree, prompts: int) -> Iterator[Figure]:
    from tests.nodes.bridge import serving

    with tempfile.TemporaryDirectory() as folder, serving.server(tree, Path(folder)) as running:
        grown = serving.run(running, prompts, warm_up=max(12, prompts // 5))
    note = f"{grown.before.rss_bytes / MB:,.0f} → {grown.after.rss_bytes / MB:,.0f} MB"
    yield Figure(
        name="server: resident bytes a prompt",
        value=grown.rss_bytes_per_prompt,
        unit="B",
        at_most=MOST_RSS_BYTES if prompts >= 200 else None,
        note=note,
    )
    yield Figure(name="server: more open files", value=grown.after.files - grown.before.files, unit="", at_most=1)
    yield Figure(name="server: more threads", value=grown.after.threads - grown.before.threads, unit="", at_most=0)
    yield Figure(name="server: most entries on ComfyUI's list", value=grown.entries, unit="", at_most=4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comfyui", type=Path, help="a ComfyUI checkout; else $COMFYUI_PATH, else the pinned release")
    parser.add_argument("--prompts", type=int, default=200, help="of each workload")
    parser.add_argument("--server-prompts", type=int, default=500, help="through a real server; 0: none")
    arguments = parser.parse_args()
    tree = find_tree(arguments.comfyui)
    print(", ".join(f"{name} {value}" for name, value in machine("a fake device").items()), f"ComfyUI {tree.version}")
    figures: list[Figure] = []
    if arguments.server_prompts:
        figures += shown(growth(tree, arguments.server_prompts))
    if arguments.prompts:
        with tempfile.TemporaryDirectory() as folder:
            start_comfyui(tree, Path(folder))
            figures += shown(workloads(arguments.prompts))
    missed = sum(figure.missed for figure in figures)
    print(f"{len(figures)} figures, {missed} missed")
    return 1 if missed else 0


def shown(figures: Iterator[Figure]) -> list[Figure]:
    found = []
    for figure in figures:
        print(line(figure), flush=True)
        found.append(figure)
    return found


if __name__ == "__main__":
    sys.exit(main())
