"""What only a real card can show, in one run of a few minutes: see docs/gpu.md.

    python -m benchmarks.gpu [SECTION …]

Needs torch, numpy and safetensors. Without CUDA the CPU plays the device, and what needs CUDA says so. Writes
$OUT/gpu.json if OUT is set. Every section stands alone: what goes wrong in one is printed, and the others go on. The
exit code is 1 if a section failed or a figure isn't what it must be.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from .figures import Figure, line, machine, save
from .gpu_checks import books, exact, failing, graphs, locking, streams
from .gpu_checks.place import NotHere, Place, find_place

SECTIONS: Mapping[str, Callable[[Place], Iterator[Figure]]] = {
    "exact": exact.section,
    "books": books.section,
    "streams": streams.section,
    "locking": locking.section,
    "graphs": graphs.section,
    "failing": failing.section,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all without any")
    names = parser.parse_args().sections or list(SECTIONS)
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    place = find_place()
    about = machine(place.described)
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    found: dict[str, list[Figure]] = {}
    failed: dict[str, str] = {}
    for name in names:
        found[name] = run(name, place, failed)
        if "OUT" in os.environ:
            save(Path(os.environ["OUT"]) / "gpu.json", about, found, failed)
    missed = sum(figure.missed for figures in found.values() for figure in figures)
    print(f"{sum(map(len, found.values()))} figures, {missed} missed, {len(failed)} sections failed")
    return 1 if failed or missed else 0


def run(name: str, place: Place, failed: dict[str, str]) -> list[Figure]:
    """One section's figures, printed as they come; its error goes into `failed`."""
    print(name, flush=True)
    figures, began = [], time.monotonic()
    try:
        for figure in SECTIONS[name](place):
            figures.append(figure)
            print(line(figure), flush=True)
    except NotHere as reason:
        print(f"  skipped: {reason}")
    except Exception as error:  # noqa: BLE001 - the other sections go on
        traceback.print_exc()
        failed[name] = repr(error)
    gc.collect()
    if place.cuda:
        torch.cuda.empty_cache()
    print(f"  {time.monotonic() - began:.1f} s", flush=True)
    return figures


if __name__ == "__main__":
    sys.exit(main())
