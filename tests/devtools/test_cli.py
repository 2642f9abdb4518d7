"""dev.py as a user meets it: one clear line, a non-zero exit code, no traceback."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from devtools import browser, suite, venv
from devtools.comfyui import ComfyServer
from devtools.errors import DevError
from devtools.paths import ROOT
from devtools.tree import Tree

PROMPT = {
    "1": {"class_type": "EmptyAudio", "inputs": {"duration": 1.25, "sample_rate": 22050, "channels": 1}},
    "2": {"class_type": "SaveAudio", "inputs": {"audio": ["1", 0], "filename_prefix": "x"}},
    "3": {"class_type": "PrimitiveString", "inputs": {"value": "the report"}},
    "4": {"class_type": "PreviewAny", "inputs": {"source": ["3", 0]}},
}


def dev(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "dev.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def write_json(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_editor_workflow_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = dev("demo", "--workflow", write_json(tmp_path / "w.json", {"nodes": [], "links": []}))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and "Export (API)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--workflow", "missing.json"], "missing.json can't be read"),
        (["demo", "--workflow", "w.json", "--text", "x"], "--text has nothing to replace"),
        (["demo", "--workflow", "w.json", "--out", "."], "is a folder"),
        (["demo", "--workflow", "w.json", "--out", "w.json/x.flac"], "can't be made"),
        (["demo", "--workflow", "w.json", "--comfyui", "."], "is not a ComfyUI checkout"),
        (["test", "--comfyui", "nowhere"], "is not a ComfyUI checkout"),
        (["comfyui", "--port", "70000"], "--port 70000 is not a port"),
    ],
)
def test_expected_failures_are_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    write_json(tmp_path / "w.json", PROMPT)
    done = dev(*arguments, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["speak"], ["demo", "--", "x"], ["comfyui", "--port", "x"]])
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    done = dev(*arguments)
    assert done.returncode == 2
    assert "usage: dev.py" in done.stderr


@pytest.mark.server
def test_demo_saves_audio_and_prints_the_figures(tmp_path: Path, tree: Tree) -> None:
    workflow = write_json(tmp_path / "w.json", PROMPT)
    done = dev("demo", "--workflow", workflow, "--out", "deep/er/a.wav", "--comfyui", tree.root, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert (tmp_path / "deep" / "er" / "a.flac").read_bytes()[:4] == b"fLaC"
    assert f"saved:            {tmp_path / 'deep' / 'er' / 'a.flac'}" in done.stdout
    assert "duration:         1.25 s" in done.stdout
    assert "real-time factor: 0." in done.stdout
    assert done.stdout.rstrip().endswith("the report")
    assert "a.wav becomes a.flac" in done.stdout


def wait_for_server(parent: psutil.Process, timeout_s: float = 60) -> psutil.Process:
    """The ComfyUI process that dev.py has started, ready or not."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        for child in parent.children():
            if any(part.endswith("main.py") for part in child.cmdline()):
                return child
        time.sleep(0.05)
    raise AssertionError(f"no ComfyUI process in {timeout_s} s")


@pytest.mark.server
@pytest.mark.parametrize(("signal_number", "exit_code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_stopping_dev_stops_its_server(tree: Tree, signal_number: signal.Signals, exit_code: int) -> None:
    command = [sys.executable, str(ROOT / "dev.py"), "comfyui", "--comfyui", str(tree.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        server = wait_for_server(psutil.Process(process.pid))
        process.send_signal(signal_number)
        process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert not server.is_running()


@pytest.mark.server
def test_comfyui_refuses_a_taken_port(tree: Tree, bare_server: ComfyServer) -> None:
    done = dev("comfyui", "--port", bare_server.port, "--comfyui", tree.root)
    assert done.returncode == 1
    assert f"port {bare_server.port} on 127.0.0.1 is taken" in done.stderr


def test_missing_ensurepip_is_installed_as_root_and_named_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    package = f"python3.{sys.version_info.minor}-venv"
    known = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else known(name))
    installed: list[str] = []
    monkeypatch.setattr(venv, "apt_install", lambda packages, log_path: installed.extend(packages))
    monkeypatch.setattr(venv, "can_use_apt", lambda: True)
    venv._require_ensurepip()
    assert installed == [package]
    monkeypatch.setattr(venv, "can_use_apt", lambda: False)
    with pytest.raises(DevError, match="apt-get install python3-venv"):
        venv._require_ensurepip()


def test_no_chromium_is_loud_and_an_error_in_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser, "find_or_install", lambda: None)
    monkeypatch.delenv("CI", raising=False)
    assert suite._browser_environment() == {"MIZUOTO_NO_BROWSER": "1"}
    assert "NO CHROMIUM" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    with pytest.raises(DevError, match="in CI the browser tests must run"):
        suite._browser_environment()


def test_chromium_that_does_not_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM_PATH", str(tmp_path / "none"))
    with pytest.raises(DevError, match="does not run"):
        browser.find()


def test_pytest_arguments_that_name_tests_replace_the_default() -> None:
    assert suite._selects_tests("tests/devtools")
    assert suite._selects_tests("tests/devtools/test_cli.py::test_x[a-b]")
    assert not suite._selects_tests("-k")
    assert not suite._selects_tests("no_such_word")


def test_the_whole_suite_uses_all_cores_but_selected_tests_run_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    whole = (["-n", "4", "--dist", "loadfile"], {"OMP_NUM_THREADS": "1"})
    assert suite._workers([]) == suite._workers(["-k", "piper"]) == whole
    assert suite._workers(["tests/devtools", "-x"]) == ([], {})
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert suite._workers([]) == ([], {})


def test_the_suite_fails_if_any_part_fails_and_runs_all(monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
    ran: list[str] = []
    codes = {"ruff": 0, "mypy": 0, "pytest": 0}

    def run(command: list[str], **_: object) -> int:
        ran.append(command[2])
        return codes[command[2]]

    monkeypatch.setattr(suite, "run", run)
    monkeypatch.setattr(suite.install, "ensure", lambda comfyui, test_tools: tree)
    monkeypatch.setattr(suite, "_browser_environment", dict)
    assert suite.run_suite([]) == 0
    for name, code in {"ruff": 1, "mypy": 1, "pytest": 5}.items():
        codes.update(dict.fromkeys(codes, 0), **{name: code})
        assert suite.run_suite([]) == code
    assert ran == ["ruff", "mypy", "pytest"] * 4
