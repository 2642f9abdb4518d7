"""TypeScript's compiler on a machine without Node.js: a wheel brings it, beside Python."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from devtools import typescript
from devtools.stamp import Stamp

SUFFIX = ".exe" if os.name == "nt" else ""


class Machine:
    """A Python in a folder of its own; what was installed there, and what was run."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.stamp = Stamp(folder / "stamp.json")
        self.wheels: list[str] = []
        self.ran: list[list[str]] = []

    def pip(self, arguments: Sequence[str], what: str) -> None:
        self.wheels += arguments
        self.put("npm", "node")

    def put(self, *names: str) -> None:
        for name in names:
            program = self.bin / f"{name}{SUFFIX}"
            program.write_bytes(b"")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def run(self, command: Sequence[str | Path], *arguments: object, **options: object) -> int:
        self.ran.append([str(part) for part in command])
        return 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(sys, "executable", str(made.bin / "python"))
    monkeypatch.setattr(typescript, "FOLDER", tmp_path / "typescript")
    monkeypatch.setattr(typescript.packages, "pip", made.pip)
    monkeypatch.setattr(typescript, "run_logged", made.run)
    monkeypatch.setattr(typescript, "run", made.run)
    return made


def test_without_nodejs_a_wheel_brings_it_once(machine: Machine) -> None:
    for _ in range(2):
        typescript.install(machine.stamp)
    assert machine.wheels == [typescript.NODE_WHEEL]
    (install,) = machine.ran
    assert install[0] == str(machine.bin / f"npm{SUFFIX}")
    assert f"typescript@{typescript.VERSION}" in install and str(typescript.FOLDER) in install


def test_a_nodejs_that_is_there_is_used(machine: Machine) -> None:
    machine.put("npm", "node")
    typescript.install(machine.stamp)
    assert machine.wheels == [] and len(machine.ran) == 1


def test_the_check_runs_with_the_wheels_nodejs(machine: Machine) -> None:
    typescript.install(machine.stamp)
    assert typescript.check()
    node, compiler, *arguments = machine.ran[-1]
    assert node == str(machine.bin / f"node{SUFFIX}")
    assert compiler.endswith("tsc") and arguments == ["--project", str(typescript.CONFIG)]


def test_an_installation_that_failed_is_tried_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> int:
        raise RuntimeError("no network")

    with monkeypatch.context() as failing, pytest.raises(RuntimeError):
        failing.setattr(typescript, "run_logged", fail)
        typescript.install(machine.stamp)
    typescript.install(machine.stamp)
    assert len(machine.ran) == 1
