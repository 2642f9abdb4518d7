"""`conformance`: does this model give the same samples, whatever of it streams?"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..engines.registry import engine_spec
from ..errors import InputError
from .arguments import add_request, choose_allocator, explicit_settings, request_of, settings_of, terminal_callbacks

if TYPE_CHECKING:
    from ..conformance import CaseResult
    from .arguments import Commands

DIFFERS = 1
TEXT = "Hello there. And again!"
BYTES_PER_MB = 1_000_000
HEADER = ("case", "budget MB", "peak MB", "streamed MB", "seconds", "difference", "equal")
DESCRIPTION = (
    "Speak a text plainly, then on a simulated device on which all units stream, half of them and none, and compare "
    "sample for sample. With a real --device: whole, all streamed and halfway on it, compared with each other. "
    "Exit code 1 if a sample differs, a run fails, or a simulated device holds more than it may."
)


def add_to(commands: Commands) -> None:
    conformance = commands.add_parser(
        "conformance", help="check that streaming changes no sample of a model", description=DESCRIPTION
    )
    add_request(conformance, text=TEXT)
    conformance.add_argument("--json", action="store_true")
    conformance.set_defaults(run=_run)


def _run(namespace: argparse.Namespace) -> int:
    settings = settings_of(namespace)
    choose_allocator(settings)
    from ..conformance import OWN_SETTINGS, SIMULATE, conform
    from ..session import Session

    taken = sorted({*OWN_SETTINGS, SIMULATE} & explicit_settings(namespace).keys())
    if taken:
        raise InputError(f"conformance sets {', '.join(taken)} itself, for each case; leave it out")
    spec = engine_spec(namespace.engine)
    request = request_of(namespace, spec)
    session = Session(settings)
    files = session.locate(spec.id, namespace.model)
    results = []
    for result in conform(settings, session.library, files, request, terminal_callbacks()):
        results.append(result)
        if not namespace.json:
            print("\n".join(_lines(result, first=len(results) == 1)), flush=True)
    if namespace.json:
        print(json.dumps([{**asdict(result), "passed": result.passed} for result in results], indent=2))
    return 0 if all(result.passed for result in results) else DIFFERS


def _lines(result: CaseResult, *, first: bool) -> Iterable[str]:
    """The result as a row of a table, under the header if it is the first, and what went wrong below it."""
    if first:
        yield _row(HEADER)
    difference = "-" if result.difference is None else f"{result.difference:g}"
    figures = (_mb(result.budget_bytes), _mb(result.peak_bytes), f"{result.streamed_mb:,.1f}", f"{result.seconds:.2f}")
    yield _row((result.name, *figures, difference, "yes" if result.equal else "NO"))
    if result.error:
        yield f"  failed: {result.error}"
    if not result.within_budget:
        yield "  more was charged than the budget allows"
    if result.left_bytes:
        yield f"  {result.left_bytes:,} bytes are still charged after the model was let go of"


def _mb(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / BYTES_PER_MB:,.1f}"


def _row(cells: Iterable[str]) -> str:
    return "".join(f"{cell:>12}" if place else f"{cell:9}" for place, cell in enumerate(cells))
