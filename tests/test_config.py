"""`mizuoto.toml`: which file is read, what it may say, and how a mistake in it is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mizuoto_runtime.config import named_config, user_folder, usual_config
from mizuoto_runtime.errors import InputError, UnknownName
from mizuoto_runtime.settings import Settings, resolve

ROOT = Path(__file__).parent.parent
JOBS = "compute.gpu_jobs"
VARIABLE = "MIZUOTO_COMPUTE__GPU_JOBS"


def written(folder: Path, text: str, name: str = "mizuoto.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(tmp_path: Path, text: str) -> Settings:
    return resolve(environment={}, config=written(tmp_path, text))


def test_the_file_beats_the_default_and_is_beaten_by_the_environment_and_the_caller(tmp_path: Path) -> None:
    path = written(tmp_path, "[compute]\ngpu_jobs = 2\noom_retry = false\n", "speech.toml")
    file = resolve(environment={}, config=path)
    assert (file.integer(JOBS), file.sources[JOBS], file.config) == (2, "speech.toml", path)
    assert file.flag("compute.oom_retry") is False
    assert file.sources["compute.vram_mode"] == "default"
    environment = resolve(environment={VARIABLE: "3"}, config=path)
    assert (environment.integer(JOBS), environment.sources[JOBS]) == (3, VARIABLE)
    explicit = resolve({JOBS: "4"}, {VARIABLE: "3"}, path)
    assert (explicit.integer(JOBS), explicit.sources[JOBS]) == (4, "--setting")


def test_every_kind_of_value_can_be_written(tmp_path: Path) -> None:
    text = (
        '[compute]\nvram_mode = "low"\nram_reserve_mb = 512\noom_fallback = true\n'
        '[engines.piper]\npinned_models = ["a", "b"]\n[paths]\nmodels = "/voices"\n'
    )
    values = read(tmp_path, text).values
    assert (values["compute.vram_mode"], values["compute.ram_reserve_mb"]) == ("low", 512)
    assert values["compute.oom_fallback"] is True
    assert values["engines.piper.pinned_models"] == ("a", "b")
    assert values["paths.models"] == "/voices"
    assert read(tmp_path, '[compute]\nram_reserve_mb = ""\n').values["compute.ram_reserve_mb"] is None
    assert read(tmp_path, 'engines.piper.pinned_models = ["a"]').names("engines.piper.pinned_models") == ("a",)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "").values == resolve(environment={}).values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[computer]\n", r"unknown table in .*mizuoto.toml 'computer'.*Known: compute, engines, fetch, paths"),
        ("gpu_jobs = 1\n", r"unknown table in .*'gpu_jobs'"),
        ('"compute.gpu_jobs" = 1\n', r"unknown table in .*'compute.gpu_jobs'"),
        ("[compute]\ngpu_job = 1\n", r"unknown key in \[compute\] of .*'gpu_job'. Did you mean 'gpu_jobs'.*vram_mode"),
        ("[engines.pipr]\n", r"unknown key in \[engines\] of .*'pipr'. Did you mean 'piper'"),
        ("[engines.piper]\nx = 1\n", r"unknown key in \[engines.piper\] of .*Known: pinned_models"),
        ("compute = 3\n", r"compute in .*mizuoto.toml is 3; it must be a table"),
        ("[[compute]]\n", r"compute in .*it must be a table"),
        ("[compute.gpu_jobs]\nx = 1\n", r"compute.gpu_jobs \(.*mizuoto.toml\) .* a whole number"),
        ('[compute]\ngpu_jobs = "2"\n', r"compute.gpu_jobs \(.*mizuoto.toml\) is '2'; it must be a whole number"),
        ("[compute]\ngpu_jobs = 2.0\n", r"compute.gpu_jobs .* a whole number"),
        ("[compute]\ngpu_jobs = true\n", r"compute.gpu_jobs .* a whole number"),
        ("[compute]\ngpu_jobs = 17\n", r"compute.gpu_jobs \(.*mizuoto.toml\) is 17; it must be from 1 to 16"),
        ('[compute]\noom_retry = "on"\n', r"compute.oom_retry \(.*\) is 'on'; it must be on or off"),
        ('[compute]\nvram_mode = "tiny"\n', r"unknown value of setting compute.vram_mode \(.*'tiny'"),
        ("[compute]\nvram_mode = 1\n", r"compute.vram_mode .* a text"),
        ("[compute]\nram_reserve_mb = []\n", r"compute.ram_reserve_mb .* a whole number, or empty"),
        ('[engines.piper]\npinned_models = "a"\n', r"pinned_models .* a list of names"),
        ("[engines.piper]\npinned_models = [1]\n", r"pinned_models .* a list of names"),
        ('[engines.piper]\npinned_models = [""]\n', r"pinned_models .* a list of names"),
        ("[compute]\ngpu_jobs = 2\ngpu_jobs = 3\n", r"mizuoto.toml isn't valid TOML: .*line 3"),
        ("[compute]\ngpu_jobs = \n", r"mizuoto.toml isn't valid TOML: .*line 2"),
        ("[compute\n", r"isn't valid TOML: .*line 1"),
        ("x = " + "[" * 5000, "isn't valid TOML"),
    ],
)
def test_a_mistake_names_the_file_and_the_key_or_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_bytes(b"[compute]\nvram_mode = '\xff\xfe'\n")
    with pytest.raises(InputError, match=r"mizuoto.toml can't be read"):
        resolve(environment={}, config=path)


def test_the_flag_beats_the_variable_and_both_must_name_a_file(tmp_path: Path) -> None:
    flag, variable = written(tmp_path, "", "flag.toml"), written(tmp_path, "", "variable.toml")
    environment = {"MIZUOTO_CONFIG": str(variable)}
    assert named_config(flag, environment) == flag
    assert named_config(None, environment) == variable
    assert named_config(None, {}) is named_config(None, {"MIZUOTO_CONFIG": ""}) is None
    with pytest.raises(InputError, match=r"--config names .*absent.toml"):
        named_config(tmp_path / "absent.toml", environment)
    with pytest.raises(InputError, match="MIZUOTO_CONFIG names"):
        named_config(None, {"MIZUOTO_CONFIG": str(tmp_path)})
    assert resolve(environment=environment).config == variable


def test_the_working_directory_comes_before_the_user(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "home"), "APPDATA": str(tmp_path / "home")}
    assert usual_config(environment, tmp_path) is None or sys.platform == "darwin"
    if sys.platform != "darwin":
        own = written(user_folder(environment), "")
        assert own == tmp_path / "home" / "mizuoto" / "mizuoto.toml"
        assert usual_config(environment, tmp_path) == own
    here = written(tmp_path, "")
    assert usual_config(environment, tmp_path) == here


def engines_in(folder: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`engines` run in a folder, as a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(folder / "none"), **environment}
    command = [sys.executable, "-m", "mizuoto_runtime", "models", "list", "piper", *flags]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, encoding="utf-8", check=False)


def test_a_process_reads_the_file_where_it_runs(tmp_path: Path) -> None:
    for name in ("here", "flag", "variable"):
        written(tmp_path / name / "piper", "", f"of_{name}.onnx")
        path = (tmp_path / name).as_posix()
        written(tmp_path, f"[paths]\nmodels = '{path}'\n", "mizuoto.toml" if name == "here" else f"{name}.toml")
    assert "of_here\tinstalled" in engines_in(tmp_path).stdout
    assert "of_variable\tinstalled" in engines_in(tmp_path, MIZUOTO_CONFIG="variable.toml").stdout
    flagged = engines_in(tmp_path, "--config", "flag.toml", MIZUOTO_CONFIG="variable.toml")
    assert "of_flag\tinstalled" in flagged.stdout


def test_a_broken_file_is_bad_use_in_one_line(tmp_path: Path) -> None:
    written(tmp_path, "[compute]\nvram_mode = low\n")
    done = engines_in(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: mizuoto.toml isn't valid TOML: .*line 2.*\n", done.stderr)


def test_an_unknown_name_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        read(tmp_path, "[compute]\nx = 1\n")
