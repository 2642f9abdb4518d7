"""The memory runtime's costs as ratios, side by side in one run, on a simulated device.

    python -m benchmarks.memory [SECTION …] [--quick] [--scale 0.5] [--rounds N] [--threads 1]
                                [--json FILE]

Each figure is the median over rounds in which all that is compared takes turns, so that a busy machine slows all of it;
on a very busy one, one thread disturbs less.
`MISSED` marks a figure that isn't what it should be; nothing fails because of it. The section `streaming` also measures
accelerate and diffusers if they are installed: devtools/requirements/benchmark.txt.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from .figures import Figure, line, machine, save
from .sections import bookkeeping, copied, loading, placing, reports, residency, streaming
from .sections.options import Options

SECTIONS: Mapping[str, Callable[[Options], Iterator[Figure]]] = {
    "bookkeeping": bookkeeping.section,
    "streaming": streaming.section,
    "placing": placing.section,
    "copied": copied.section,
    "residency": residency.section,
    "reports": reports.section,
    "loading": loading.section,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all without any")
    parser.add_argument("--quick", action="store_true", help="small models, few rounds")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the models' layers, for a shorter run")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of every section, 0 for its own number")
    parser.add_argument("--threads", type=int, default=0, help="torch's threads, 0 for its own number")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    options = Options(quick=arguments.quick, scale=arguments.scale, rounds=arguments.rounds)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    about = machine("the CPU, playing a device")
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    return run(arguments.sections or list(SECTIONS), options, about, arguments.json)


def run(names: list[str], options: Options, about: dict[str, str], path: Path | None) -> int:
    """Print every section's figures; 1 if a section raised, 0 otherwise."""
    found: dict[str, list[Figure]] = {}
    failed: dict[str, str] = {}
    for name in names:
        print(f"{name}", flush=True)
        found[name] = []
        try:
            for figure in SECTIONS[name](options):
                found[name].append(figure)
                print(line(figure), flush=True)
        except Exception as error:  # noqa: BLE001 - the other sections go on
            traceback.print_exc()
            failed[name] = repr(error)
    missed = sum(figure.missed for figures in found.values() for figure in figures)
    print(f"{sum(map(len, found.values()))} figures, {missed} missed, {len(failed)} sections failed")
    if path is not None:
        save(path, about, found, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
