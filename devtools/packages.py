"""pip inside `.venv`, and which builds of torch, torchvision and torchaudio fit one CPU environment."""

from __future__ import annotations

import importlib
import json
import re
import site
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from .errors import DevError
from .paths import LOGS, VENV
from .process import output_of, run_logged

TORCH = "torch==2.13.0"
TORCHAUDIO = "torchaudio==2.11.1"
TORCHVISION_BESIDE_CPU_TORCH = "torchvision==0.16.2"  # later PyPI builds for Linux link CUDA and fail on import
CPU_INDEX = ("--index-url", "https://download.pytorch.org/whl/cpu")
MINIMAL_PIP = (23, 3)  # the first whose --dry-run reads a wheel's metadata without fetching the wheel
CONSTRAINTS = VENV / "torch-constraints.txt"
_ADVICE = "Check the network and the free disk space (about 3 GB), then run this again."


def pip(arguments: Sequence[str | Path], what: str) -> None:
    """Run `pip install` with `arguments`, quietly; a failure shows the end of pip's output."""
    print(f"  {what} …", end="", flush=True)
    began_s = time.monotonic()
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments]
    try:
        run_logged(command, LOGS / "pip.log", what=f"installing {what}", advice=_ADVICE, timeout_s=3600)
    finally:
        print(f" {time.monotonic() - began_s:.0f} s", flush=True)
    importlib.invalidate_caches()


def upgrade_pip() -> None:
    numbers = re.findall(r"\d+", metadata.version("pip"))
    if tuple(int(number) for number in numbers[:2]) < MINIMAL_PIP:
        pip(["--upgrade", "pip"], "a newer pip")


def _imports(code: str) -> str | None:
    """What a fresh interpreter prints for `code`, or None if it fails."""
    output = output_of([sys.executable, "-c", code], timeout_s=300)
    return None if output is None else output.strip()


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _pip_would_choose(requirement: str) -> str:
    """The version, local part included, of the wheel that pip would install as it is configured here."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-input", "--no-deps"]
    report = output_of([*command, "--ignore-installed", "--report", "-", requirement], timeout_s=600)
    if report is None:
        raise DevError(f"pip finds no {requirement} for Python {sys.version.split()[0]} on this machine. {_ADVICE}")
    return str(json.loads(report)["install"][0]["metadata"]["version"])


def _install_torch() -> bool:
    """Install torch unless it is there. Returns whether it came from PyTorch's own CPU index."""
    if _is_installed("torch"):
        return False
    default_is_cpu = sys.platform in ("win32", "darwin") or "+cpu" in _pip_would_choose(TORCH)
    pip([TORCH, *(() if default_is_cpu else CPU_INDEX)], f"{TORCH} (CPU)")
    return not default_is_cpu


def _torchvision_choices(from_cpu_index: bool) -> list[tuple[str, ...]]:
    """pip arguments to try in turn; which one works shows only on import."""
    matching = ("torchvision", "-c", str(CONSTRAINTS))
    if sys.platform != "linux" or _imports("import torch; print(torch.version.cuda or torch.version.hip or '')"):
        return [matching]
    from_index = (*matching, *CPU_INDEX)
    standalone = ("--no-deps", TORCHVISION_BESIDE_CPU_TORCH)
    if from_cpu_index or sys.version_info >= (3, 12):  # 0.16.2 has no wheel for Python 3.12
        return [from_index]
    return [standalone, from_index]


def _install_torchvision(from_cpu_index: bool) -> None:
    if _is_installed("torchvision") and _imports("import torchvision") is not None:
        return
    pip(["numpy", "Pillow", "requests"], "what torchvision imports")  # as one choice comes without dependencies
    failures: list[str] = []
    for arguments in _torchvision_choices(from_cpu_index):
        try:
            pip(["--upgrade", *arguments], "torchvision")
        except DevError as error:
            failures.append(str(error))
            continue
        if _imports("import torchvision") is not None:
            return
        failures.append(f"torchvision from {arguments} can't be imported beside the installed torch")
    raise DevError("no torchvision fits the installed torch:\n" + "\n".join(failures))


def _install_torchaudio() -> None:
    """Install torchaudio without its compiled libraries, which link CUDA; ComfyUI only needs its Python part."""
    if _is_installed("torchaudio"):
        return
    pip(["--no-deps", TORCHAUDIO], TORCHAUDIO)
    for folder in site.getsitepackages():
        for suffix in ("so", "pyd", "dylib"):
            for library in (Path(folder) / "torchaudio" / "lib").glob(f"*.{suffix}"):
                library.unlink()


def install_torch_family() -> None:
    """Install torch, torchvision and torchaudio, respecting a torch that is there, and pin them for later installs."""
    from_cpu_index = _install_torch()
    version = _imports("import torch; print(torch.__version__)")
    if version is None:
        raise DevError(f"the torch in {VENV} can't be imported. Delete that folder and run this again")
    CONSTRAINTS.write_text(f"torch=={version}\n", encoding="utf-8")
    _install_torchvision(from_cpu_index)
    _install_torchaudio()
    pins = [f"{name}=={metadata.version(name)}\n" for name in ("torch", "torchvision", "torchaudio")]
    CONSTRAINTS.write_text("".join(pins), encoding="utf-8")


def install_requirements(files: Sequence[Path], what: str) -> None:
    """Install requirement files without touching the torch family."""
    pip(["-c", CONSTRAINTS, *(part for file in files for part in ("-r", file))], what)
