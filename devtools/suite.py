"""`dev.py test`: lint, types and tests. All run; any failure makes the exit code non-zero."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import browser, install, typescript
from .errors import DevError
from .paths import ROOT
from .process import run

MOST_WORKERS = 4
"""Each may start a ComfyUI server and a browser."""


def _workers(pytest_arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment that spread the whole suite over the cores, a file at a time; none for selected tests.

    With several processes at work torch's own threads only wait for each other.
    """
    count = min(MOST_WORKERS, os.cpu_count() or 1)
    if count < 2 or any(map(_selects_tests, pytest_arguments)):
        return [], {}
    return ["-n", str(count), "--dist", "loadfile"], {"OMP_NUM_THREADS": "1"}


def _selects_tests(argument: str) -> bool:
    return not argument.startswith("-") and (ROOT / argument.split("::")[0]).exists()


def _browser_environment() -> dict[str, str]:
    chromium = browser.find_or_install()
    if chromium is not None:
        return {"CHROMIUM_PATH": str(chromium)}
    if os.environ.get("CI"):
        raise DevError("no Chromium can be had, and in CI the browser tests must run. Set CHROMIUM_PATH to one")
    line = "!" * 100
    print(f"{line}\n!! NO CHROMIUM: THE BROWSER TESTS ARE LEFT OUT. {browser.ADVICE}\n{line}", flush=True)
    return {"MIZUOTO_NO_BROWSER": "1"}


def _check(name: str, *arguments: str) -> bool:
    print(f"== {name}", flush=True)
    passed = run([sys.executable, "-m", name, *arguments], cwd=ROOT) == 0
    if not passed:
        print(f"== {name} FAILED; the rest runs all the same, and the exit code will be 1", flush=True)
    return passed


def run_suite(pytest_arguments: list[str], comfyui: Path | None = None) -> int:
    """Run everything against the given ComfyUI checkout (see `find_tree`); returns the exit code."""
    tree = install.ensure(comfyui, test_tools=True)
    python_path = os.pathsep.join(filter(None, (str(tree.packages), os.environ.get("PYTHONPATH"))))
    environment = {"COMFYUI_PATH": str(tree.root), "PYTHONPATH": python_path, **_browser_environment()}
    clean = [_check("ruff", "check"), _check("mypy"), typescript.check()]
    print(f"== pytest with ComfyUI {tree.version}", flush=True)
    workers, threads = _workers(pytest_arguments)
    selection = [] if any(map(_selects_tests, pytest_arguments)) else ["tests"]
    command = [sys.executable, "-m", "pytest", *workers, *pytest_arguments, *selection]
    code = run(command, cwd=ROOT, env={**environment, **threads})
    return code if all(clean) else code or 1
