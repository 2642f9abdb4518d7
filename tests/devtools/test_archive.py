from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from devtools import archive
from devtools.errors import DevError


def make_zip(path: Path, *names: str, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as zipped:
        for name in names:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            zipped.writestr(member, f"content of {name}")
    return path


def test_unpacks_only_the_folder(tmp_path: Path) -> None:
    wheel = make_zip(tmp_path / "a.whl", "pkg/tree/main.py", "pkg/tree/sub/x.py", "pkg/other.py", "pkg/treeish/y.py")
    archive.extract_folder(wheel, "pkg/tree", tmp_path / "out")
    found = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert found == ["main.py", "sub/x.py"]
    assert (tmp_path / "out/sub/x.py").read_text() == "content of pkg/tree/sub/x.py"


@pytest.mark.parametrize(
    "name",
    ["pkg/tree/../../../evil.py", "/etc/evil.py", "pkg/tree/..\\..\\evil.py", "C:/evil.py", "pkg/tree/c:evil.py"],
)
def test_refuses_escaping_members_before_writing(tmp_path: Path, name: str) -> None:
    wheel = make_zip(tmp_path / "a.whl", "pkg/tree/main.py", name)
    with pytest.raises(DevError, match="outside its folder"):
        archive.extract_folder(wheel, "pkg/tree", tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.whl"]


def test_refuses_links(tmp_path: Path) -> None:
    wheel = make_zip(tmp_path / "a.whl", "pkg/tree/link", mode=stat.S_IFLNK | 0o777)
    with pytest.raises(DevError, match="not a plain file"):
        archive.extract_folder(wheel, "pkg/tree", tmp_path / "out")


def test_refuses_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 10)
    wheel = make_zip(tmp_path / "a.whl", "pkg/tree/main.py")
    with pytest.raises(DevError, match="27 bytes, more than 10"):
        archive.extract_folder(wheel, "pkg/tree", tmp_path / "out")


def test_damaged_and_empty(tmp_path: Path) -> None:
    (tmp_path / "bad.whl").write_bytes(b"PK\x03\x04 nothing of a zip")
    with pytest.raises(DevError, match=r"bad\.whl is damaged"):
        archive.extract_folder(tmp_path / "bad.whl", "pkg/tree", tmp_path / "out")
    with pytest.raises(DevError, match="holds nothing below pkg/tree/"):
        archive.extract_folder(make_zip(tmp_path / "b.whl", "pkg/x.py"), "pkg/tree", tmp_path / "out")
