from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from devtools import packages
from devtools.errors import DevError


def make_torch_wheel(folder: Path, version: str) -> None:
    info = f"torch-{version}.dist-info"
    folder.mkdir()
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Arguments of each pip installation, which is only noted."""
    noted: list[tuple[str, ...]] = []

    def note(arguments: Sequence[str], what: str) -> None:
        noted.append(tuple(arguments))

    monkeypatch.setattr(packages, "pip", note)
    monkeypatch.setattr(packages, "_is_installed", lambda name: False)
    monkeypatch.setattr("sys.platform", "linux")
    return noted


@pytest.mark.parametrize(
    ("offered", "index"), [("2.13.0+cpu", ()), ("2.13.0", packages.CPU_INDEX), ("2.13.0+cu130", packages.CPU_INDEX)]
)
def test_torch_comes_from_the_cpu_index_unless_pip_would_choose_a_cpu_build(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    installs: list[tuple[str, ...]],
    offered: str,
    index: tuple[str, ...],
) -> None:
    make_torch_wheel(tmp_path / "wheels", offered)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert packages._install_torch() is bool(index)
    assert installs == [("torch==2.13.0", *index)]


def test_no_torch_for_this_python_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(DevError, match=r"pip finds no torch==0\.0\.1 for Python 3"):
        packages._pip_would_choose("torch==0.0.1")


def test_a_torch_that_is_there_is_kept(monkeypatch: pytest.MonkeyPatch, installs: list[tuple[str, ...]]) -> None:
    monkeypatch.setattr(packages, "_is_installed", lambda name: True)
    assert packages._install_torch() is False
    assert installs == []


def test_the_next_torchvision_is_tried_when_one_does_not_import(
    monkeypatch: pytest.MonkeyPatch, installs: list[tuple[str, ...]]
) -> None:
    choices = [("torchvision==1",), ("torchvision==2",), ("torchvision==3",)]
    monkeypatch.setattr(packages, "_torchvision_choices", lambda from_cpu_index: choices)
    monkeypatch.setattr(packages, "_imports", lambda code: "" if len(installs) == 3 else None)
    packages._install_torchvision(False)
    assert [arguments[-1] for arguments in installs[1:]] == ["torchvision==1", "torchvision==2"]
    monkeypatch.setattr(packages, "_imports", lambda code: None)
    with pytest.raises(DevError, match="no torchvision fits"):
        packages._install_torchvision(False)


@pytest.mark.parametrize(
    ("platform", "gpu_version", "python", "from_index", "expected"),
    [
        ("darwin", "", (3, 11), False, ["matching"]),
        ("linux", "13.0", (3, 11), False, ["matching"]),
        ("linux", "", (3, 11), True, ["index"]),
        ("linux", "", (3, 13), False, ["index"]),
        ("linux", "", (3, 11), False, ["standalone", "index"]),
    ],
)
def test_torchvision_choices(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    gpu_version: str,
    python: tuple[int, int],
    from_index: bool,
    expected: list[str],
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr("sys.version_info", python)
    monkeypatch.setattr(packages, "_imports", lambda code: gpu_version)
    kinds = [
        "standalone" if "--no-deps" in choice else "index" if "--index-url" in choice else "matching"
        for choice in packages._torchvision_choices(from_index)
    ]
    assert kinds == expected
