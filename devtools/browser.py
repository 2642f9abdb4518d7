"""Finds a Chromium for the browser tests, or installs one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from .errors import DevError
from .paths import LOGS
from .process import apt_install, can_use_apt, output_of, run_logged

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
USUAL_PLACES = (
    "/usr/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
WINDOWS_PLACES = ("Google/Chrome/Application/chrome.exe", "Microsoft/Edge/Application/msedge.exe")
DEBIAN_PACKAGES = ("chromium", "fonts-wqy-microhei")  # the font draws Chinese, Japanese and Korean
ADVICE = "Install Chromium or Chrome, or set CHROMIUM_PATH to its executable."


def launch_options(executable: Path) -> dict[str, object]:
    """Keyword arguments for Playwright's `chromium.launch`. Chromium refuses its sandbox to root."""
    is_root = os.name == "posix" and os.geteuid() == 0
    arguments = ["--no-sandbox"] if is_root else []
    return {"executable_path": str(executable), "headless": True, "args": [*arguments, "--disable-dev-shm-usage"]}


def _candidates() -> Iterator[str]:
    yield from filter(None, map(shutil.which, NAMES))
    yield from USUAL_PLACES
    for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
        if os.environ.get(variable):
            yield from (str(Path(os.environ[variable]) / place) for place in WINDOWS_PLACES)


def _runs(executable: Path) -> bool:
    """Whether it is a real browser, not a stub that asks for a package. On Windows --version would open a window."""
    if not executable.is_file():
        return False
    return os.name == "nt" or output_of([executable, "--version"], timeout_s=60) is not None


def _playwright_chromium() -> Path | None:
    code = (
        "from playwright.sync_api import sync_playwright as s\n"
        "with s() as p: print(p.chromium.executable_path)"
    )
    path = output_of([sys.executable, "-c", code])
    return Path(path.strip()) if path and Path(path.strip()).is_file() else None


def find() -> Path | None:
    """A Chromium that is there: $CHROMIUM_PATH, on PATH, in a usual place, or Playwright's own download.

    Raises `DevError` if $CHROMIUM_PATH names something that is not a browser.
    """
    named = os.environ.get("CHROMIUM_PATH")
    if named:
        if not _runs(Path(named)):
            raise DevError(f"CHROMIUM_PATH is {named!r}, which does not run. {ADVICE}")
        return Path(named)
    return next((Path(path) for path in _candidates() if _runs(Path(path))), None) or _playwright_chromium()


def find_or_install() -> Path | None:
    """A Chromium that is there, else Debian's package (as root), else Playwright's download; None if all fail."""
    found = find()
    if found is not None:
        return found
    if can_use_apt():
        print("installing Debian's chromium …", flush=True)
        try:
            apt_install(DEBIAN_PACKAGES, LOGS / "apt.log")
        except DevError as error:
            print(f"  {error}", flush=True)
        found = find()
    return found or _download()


def _download() -> Path | None:
    print("downloading Playwright's Chromium …", flush=True)
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    try:
        run_logged(command, LOGS / "playwright.log", what="playwright install", advice=ADVICE, timeout_s=300)
    except DevError as error:
        print(f"  {error}", flush=True)
        return None
    return _playwright_chromium()
