"""The command line as a script sees it: files, exit codes, one line on failure."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mizuoto_runtime.audio.wav import read_wav
from mizuoto_runtime.cli import main
from mizuoto_runtime.cli.arguments import options_help
from mizuoto_runtime.engines.registry import all_engines
from mizuoto_runtime.engines.spec import AUDIO, TEXT
from tests.golden.f5tts.checkpoint import RECORDING, install

ROOT = Path(__file__).parent.parent
TONES = ["speak", "--engine", "dummy", "--model", "tones"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mizuoto_runtime", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False, timeout=120)


def fails(status: int, *arguments: str | Path) -> str:
    done = run(*arguments)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, "one line"
    return done.stderr


def test_speak_writes_float_wav_and_its_report(tmp_path: Path) -> None:
    out, report = tmp_path / "a.wav", tmp_path / "a.json"
    files = ("--out", out, "--report", report)
    done = run(*TONES, "--text", "ab c", "--option", "tone_seconds=0.1", "--seed", "7", *files)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    raw = out.read_bytes()
    format_tag, channels, rate_hz = struct.unpack_from("<HHI", raw, 20)
    assert (format_tag, channels, rate_hz) == (3, 1, 24000)
    samples = np.frombuffer(raw[-4 * 9600 :], np.float32)
    assert np.abs(samples[:7200]).max() > 0.1
    assert np.abs(samples[4800:7200]).max() == 0, "a space is silent"
    meta = json.loads(report.read_text(encoding="utf-8"))
    assert meta["duration_seconds"] == 0.4
    assert meta["phases"][0]["seed"] == 7
    assert set(meta["memory"]) == {"streamed_mb", "loaded_mb", "size_mb"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["sing"], "invalid choice"),
        ([*TONES, "--text", "a"], "--out"),
        (["speak", "--engine", "dumy", "--model", "x", "--text", "a", "--out", "a.wav"], "Did you mean 'dummy'"),
        (["speak", "--engine", "dummy", "--model", "x", "--text", "a", "--out", "a.wav"], "Known: tones"),
        ([*TONES, "--text", "", "--out", "a.wav"], "empty"),
        ([*TONES, "--text", "a", "--out", "a.mp3"], "must end in .wav"),
        ([*TONES, "--text", "a", "--out", "nowhere/a.wav"], "no folder nowhere"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--report", "nowhere/a.json"], "no folder nowhere"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--seed", "-1"], "from 0 to"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--seed", "x"], "invalid int"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--option", "noise"], "name=value"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--option", "nois=1"], "Did you mean 'noise'"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--option", "noise=NaN"], "from 0 to 1"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--option", "noise=loud"], "isn't a number"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--setting", "compute.x=1"], "Known: compute."),
        ([*TONES, "--text", "a", "--out", "a.wav", "--language", "en"], "unknown option"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--device", "cdua"], "cdua"),
        ([*TONES, "--text", "a", "--out", "a.wav", "--reference-text", "b"], "no use for reference_text"),
    ],
)
def test_bad_use_is_exit_code_2_and_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == "" and message in told.err
    assert told.err.startswith("error: ") and told.err.count("\n") == 1, "one line"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "COMMAND"), ([*TONES, "--text", "", "--out", "a.wav"], "empty")]
)
def test_a_script_sees_the_same(arguments: list[str], message: str) -> None:
    assert message in fails(2, *arguments)
    assert not (ROOT / "a.wav").exists()


def test_a_model_that_is_not_there_is_a_failure_that_shows_its_path_as_it_is_written(tmp_path: Path) -> None:
    absent = tmp_path / "语音.onnx"
    line = fails(1, "speak", "--engine", "piper", "--model", absent, "--text", "a", "--out", tmp_path / "a.wav")
    assert f"there is no Piper model at {absent}" in line


def test_engines_lists_everything_that_is_declared() -> None:
    engines = {engine["id"]: engine for engine in json.loads(run("engines", "--json").stdout)}
    assert [phase["id"] for phase in engines["piper"]["phases"]] == ["voice", "encode", "decode"]
    (tones,) = engines["dummy"]["models"]
    assert (tones["id"], tones["installed"], tones["fetchable"], tones["restricts"]) == ("tones", True, False, False)
    joe = next(model for model in engines["piper"]["models"] if model["id"] == "en_US-joe-medium")
    assert joe["fetchable"] and joe["size_bytes"] > 60_000_000 and joe["licence"] == "CC0-1.0"
    text = run("engines").stdout
    assert all(option["name"] in text for phase in engines["piper"]["phases"] for option in phase["options"])
    assert "Loudness of the white noise" in run("speak", "--help").stdout


def test_each_option_is_listed_once_for_an_engine() -> None:
    listed = [line.partition("=")[0] for line in options_help().splitlines()]
    assert len(listed) == len(set(listed))


def test_whatever_recording_and_text_an_engine_takes_has_a_flag() -> None:
    known = run("speak", "--help").stdout.split()
    ports = [port for spec in all_engines() for phase in spec.phases for port in phase.takes]
    for name in {port.name for port in ports if port.type in (AUDIO, TEXT)}:
        assert f"--{name.replace('_', '-')}" in known


def test_a_recording_is_edited(tmp_path: Path) -> None:
    install(tmp_path)
    out, recording = tmp_path / "a.wav", tmp_path / "input" / RECORDING
    spans = ("--option", "parts_to_edit=0.5-1.0", "--option", "part_durations=1.5", "--option", "nfe_step=2")
    model = ("--engine", "f5tts", "--model", tmp_path / "models" / "mizuoto" / "f5tts" / "F5TTS_v1_Base")
    done = run("speak", *model, "--recording", recording, "--text", "So it was.", *spans, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    samples, rate_hz = read_wav(out)
    assert samples.shape[1] == pytest.approx(2.5 * rate_hz, abs=600)


def test_models_list_says_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "piper").mkdir()
    (tmp_path / "piper/mine.onnx").write_bytes(b"")
    listed = run("models", "list", "piper", "--setting", f"paths.models={tmp_path}").stdout
    assert "piper\tmine\tinstalled" in listed
