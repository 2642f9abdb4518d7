"""Brings `.venv` to what a command needs. Each group is installed once per content of its requirements."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from . import packages, typescript
from .paths import REQUIREMENTS, ROOT, STATE, VENV
from .stamp import Stamp, digest, exclusive
from .tree import Tree, find_tree

STAMP = Stamp(VENV / "dev-stamp.json")


def _group_key(*files: Path) -> str:
    fixed = (sys.version, packages.TORCH, packages.TORCHAUDIO, packages.TORCHVISION_BESIDE_CPU_TORCH)
    return digest(*fixed, *(file.read_bytes() for file in files))


def _install_base() -> None:
    """torch, the pack's own requirements and the demo's; everything else builds on it."""
    files = [ROOT / "requirements.txt", REQUIREMENTS / "demo.txt"]
    key = _group_key(*files)
    if STAMP.has("base", key):
        return
    STAMP.clear()
    print("setting up .venv (only once; a few minutes):", flush=True)
    packages.upgrade_pip()
    packages.install_torch_family()
    packages.install_requirements(files, "the pack's requirements")
    STAMP.add("base", key)


def _install_tree(tree: Tree) -> None:
    """ComfyUI's requirements: what versions share goes into `.venv`, its own pinned packages beside the tree."""
    group = f"comfyui-{tree.version}"
    key = digest(sys.version, tree.version, tree.requirements_text())
    if STAMP.has(group, key) and tree.packages.is_dir():
        return
    STAMP.forget(group)
    print(f"setting up for ComfyUI {tree.version}:", flush=True)
    shared, own = tree.requirements()
    with tempfile.TemporaryDirectory(dir=STATE, prefix="install-") as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("\n".join(shared), encoding="utf-8")
        packages.install_requirements([listed], f"ComfyUI {tree.version}'s requirements")
        if not tree.packages.is_dir():
            target = Path(folder) / "packages"
            target.mkdir()
            packages.pip(["--no-deps", "--target", target, *own], ", ".join(own))
            tree.packages.parent.mkdir(parents=True, exist_ok=True)
            target.replace(tree.packages)
    STAMP.add(group, key)


def _install_test_tools() -> None:
    files = [ROOT / "requirements.txt", REQUIREMENTS / "test.txt"]
    key = _group_key(*files)
    if STAMP.has("test", key):
        return
    STAMP.forget("test")
    print("setting up the test tools:", flush=True)
    packages.install_requirements(files, "the test tools")
    STAMP.add("test", key)


def ensure(comfyui: Path | None, *, test_tools: bool = False) -> Tree:
    """Install what is missing for the ComfyUI in use (see `find_tree`) and return it; offline if all is there."""
    with exclusive(STATE / "setup.lock"):
        _install_base()
        tree = find_tree(comfyui)
        _install_tree(tree)
        if test_tools:
            _install_test_tools()
            typescript.install(STAMP)
    return tree
