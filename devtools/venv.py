"""Makes `.venv` and continues inside it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .errors import DevError
from .paths import LOGS, ROOT, STATE, VENV, VENV_PYTHON
from .process import apt_install, can_use_apt, output_of, run_logged
from .stamp import exclusive


def inside_venv() -> bool:
    return Path(sys.prefix).resolve() == VENV.resolve()


def _venv_works() -> bool:
    return VENV_PYTHON.exists() and output_of([VENV_PYTHON, "-m", "pip", "--version"]) is not None


def _require_ensurepip() -> None:
    """Debian ships python3 without venv and ensurepip: install its package as root, else say which one."""
    if all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if not can_use_apt():
        raise DevError(f"this Python can't make virtual environments. Run: apt-get install python3-venv (or {package})")
    print(f"installing Debian's {package} …", flush=True)
    apt_install([package], LOGS / "apt.log")
    importlib.invalidate_caches()


def create_venv() -> None:
    """Make `.venv` unless a working one is there; a broken or half-made one is made anew."""
    with exclusive(STATE / "setup.lock"):
        if _venv_works():
            return
        _require_ensurepip()
        if VENV.exists():
            if not (VENV / "pyvenv.cfg").exists() and any(VENV.iterdir()):
                raise DevError(f"{VENV} is not a virtual environment. Move it away and run this again")
            shutil.rmtree(VENV)
        print("making .venv …", flush=True)
        run_logged(
            [sys.executable, "-m", "venv", VENV],
            LOGS / "venv.log",
            what="making .venv",
            advice="On Debian: apt-get install python3-venv; then run this again.",
            timeout_s=600,
        )


def continue_inside(arguments: list[str]) -> int:
    """Run dev.py with the same arguments under `.venv`'s Python. On POSIX this replaces the process."""
    command = [str(VENV_PYTHON), str(ROOT / "dev.py"), *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execv(command[0], command)
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the child received it too and cleans up
