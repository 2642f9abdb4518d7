from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devtools import install, packages
from devtools.errors import DevError
from devtools.paths import ROOT
from devtools.stamp import Stamp, digest, exclusive
from devtools.tree import Tree


def test_digest_tells_parts_apart() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == digest(b"ab")


def test_stamp_remembers_one_key_per_group(tmp_path: Path) -> None:
    stamp = Stamp(tmp_path / "deep" / "stamp.json")
    assert not stamp.has("base", "1")
    stamp.add("base", "1")
    stamp.add("test", "x")
    assert Stamp(stamp.path).has("base", "1")
    stamp.add("base", "2")
    assert not stamp.has("base", "1")
    stamp.forget("base")
    assert not stamp.has("base", "2")
    assert stamp.has("test", "x")


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00\xff"])
def test_damaged_stamp_counts_as_none(tmp_path: Path, content: str) -> None:
    stamp = Stamp(tmp_path / "stamp.json")
    stamp.path.write_text(content, encoding="latin-1")
    assert not stamp.has("base", "1")
    stamp.add("base", "1")
    assert stamp.has("base", "1")


def test_half_done_install_is_not_stamped_and_a_done_one_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "STAMP", Stamp(tmp_path / "stamp.json"))
    calls: list[str] = []
    monkeypatch.setattr(packages, "upgrade_pip", lambda: calls.append("pip"))
    monkeypatch.setattr(packages, "install_torch_family", lambda: calls.append("torch"))

    def fail(files: object, what: str) -> None:
        raise DevError("no network")

    monkeypatch.setattr(packages, "install_requirements", fail)
    with pytest.raises(DevError, match="no network"):
        install._install_base()
    assert not install.STAMP.path.exists()

    monkeypatch.setattr(packages, "install_requirements", lambda files, what: calls.append(what))
    install._install_base()
    assert calls == ["pip", "torch", "pip", "torch", "the pack's requirements"]
    install._install_base()
    assert len(calls) == 5


def test_a_changed_tree_installs_again_and_keeps_the_other_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "STAMP", Stamp(tmp_path / "stamp.json"))
    monkeypatch.setattr(install, "STATE", tmp_path)
    monkeypatch.setattr("devtools.tree.STATE", tmp_path)
    installed: list[str] = []
    monkeypatch.setattr(packages, "install_requirements", lambda files, what: installed.append(what))
    monkeypatch.setattr(packages, "pip", lambda arguments, what: installed.append(what))
    trees = []
    for version in ("1.0.0", "2.0.0"):
        root = tmp_path / version
        root.mkdir()
        (root / "requirements.txt").write_text(f"comfyui-frontend-package=={version}\ntorch\nav\n")
        trees.append(Tree(root, version))
        install._install_tree(trees[-1])
    assert installed == [
        "ComfyUI 1.0.0's requirements",
        "comfyui-frontend-package==1.0.0",
        "ComfyUI 2.0.0's requirements",
        "comfyui-frontend-package==2.0.0",
    ]
    for tree in trees:
        install._install_tree(tree)
    assert len(installed) == 4
    (trees[0].root / "requirements.txt").write_text("comfyui-frontend-package==1.0.1\n")
    install._install_tree(trees[0])
    assert installed[4:] == ["ComfyUI 1.0.0's requirements", "comfyui-frontend-package==1.0.1"]


def test_lock_excludes_another_process_and_ends_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from devtools.stamp import exclusive\n"
        "with exclusive(Path(sys.argv[1])): print('held', flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(lock)]
    with exclusive(lock):
        waiting = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith("waiting for another dev.py")
        assert waiting.poll() is None
    output, _ = waiting.communicate(timeout=30)
    assert output == "held\n"
    assert waiting.returncode == 0
