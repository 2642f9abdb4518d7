"""`doctor`: every figure that is known, where each setting came from, and what to mend."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mizuoto_runtime.cli import main
from mizuoto_runtime.cli.doctor import text
from mizuoto_runtime.doctor import gather
from mizuoto_runtime.memory.report import PinFacts, RamFacts
from mizuoto_runtime.settings import SETTINGS, resolve

ROOT = Path(__file__).parent.parent
MB = 1 << 20


def examined(tmp_path: Path, **texts: str) -> dict[str, Any]:
    (tmp_path / "models").mkdir(exist_ok=True)
    settings = {"paths.models": str(tmp_path / "models")}
    return gather(resolve(settings | {name.replace("__", "."): value for name, value in texts.items()}, {}))


def problems(found: dict[str, Any]) -> str:
    return "\n".join(f"{item['what']} -> {item['next']}" for item in found["problems"])


def test_a_healthy_machine_has_no_problems(tmp_path: Path) -> None:
    found = examined(tmp_path)
    assert found["problems"] == []
    assert found["config_file"] is None
    assert set(found["settings"]) == {setting.name for setting in SETTINGS}
    assert found["settings"]["compute.vram_mode"] == {"value": "auto", "source": "default"}
    assert found["settings"]["paths.models"]["source"] == "--setting"
    assert found["torch"]["version"] == torch.__version__
    assert found["torch"]["threads"] == torch.get_num_threads()
    assert found["python"]["executable"] == sys.executable
    assert found["model_folders"] == [{"path": str(tmp_path / "models"), "exists": True, "writable": True, "models": 0}]
    assert json.loads(json.dumps(found)) == found


def test_the_policy_in_force_is_shown(tmp_path: Path) -> None:
    texts = {"compute__vram_mode": "low", "compute__vram_limit_mb": "512", "compute__ram_reserve_mb": "256"}
    memory = examined(tmp_path, **texts, engines__dummy__pinned_models="tones")["memory"]
    assert (memory["device"], memory["shares_device"]) == ("cpu", False)
    policy = memory["policy"]
    assert (policy["mode"], policy["limit_bytes"], memory["reserve_bytes"]) == ("low", 512 * MB, 1024 * MB)
    assert (policy["ram_reserve_bytes"], policy["max_pinned_bytes"]) == (256 * MB, None)
    assert policy["pinned_models"] == ["dummy:tones"]


def test_devices_are_listed_once_with_their_figures(tmp_path: Path) -> None:
    found = examined(tmp_path, compute__simulate_vram_mb="4096")
    device = found["memory"]["devices"][0]
    assert (device["name"], device["kind"], device["error"]) == ("cpu", "simulated", "")
    assert (device["total_bytes"], device["free_bytes"], device["held_bytes"]) == (4096 * MB, 4096 * MB, 0)
    names = [device["name"] for device in found["memory"]["devices"]]
    assert len(names) == len(set(names))
    assert "compute.simulate_vram_mb is on" in problems(found)
    plain = examined(tmp_path)["memory"]["devices"][0]
    assert (plain["kind"], plain["total_bytes"], plain["free_bytes"]) == ("cpu", None, None)


def test_engines_say_what_is_installed_and_what_can_be_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "piper"
    folder.mkdir(parents=True)
    (folder / "mine.onnx").write_bytes(b"listed, never opened")
    found = examined(tmp_path)
    piper, qwen3tts, f5tts, voxcpm, omnivoice, dummy = found["engines"]
    assert (piper["id"], piper["installed"], piper["missing"]) == ("piper", ["mine"], [])
    assert "en_US-joe-medium" in piper["fetchable"]
    assert qwen3tts["installed"] == []
    assert "Qwen3-TTS-12Hz-0.6B-Base" in qwen3tts["fetchable"]
    assert qwen3tts["by_hand"] == piper["by_hand"] == []
    assert (f5tts["installed"], f5tts["fetchable"]) == ([], [])
    assert (voxcpm["installed"], voxcpm["fetchable"]) == ([], [])
    assert (omnivoice["installed"], omnivoice["fetchable"]) == ([], [])
    assert "installed: none; to be downloaded by hand: VoxCPM-0.5B, VoxCPM1.5, VoxCPM2" in text(found)
    assert "installed: none; to be downloaded by hand: OmniVoice" in text(found)
    assert (dummy["installed"], dummy["fetchable"]) == (["tones"], [])
    assert found["model_folders"][0]["models"] == 1


def test_a_missing_package_says_what_for_and_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "espeakng_loader", raising=False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    found = examined(tmp_path)
    assert [item["package"] for item in found["engines"][0]["missing"]] == ["espeakng-loader"]
    assert "Piper lacks espeakng-loader for espeak-ng's phonemes -> " in problems(found)
    assert "pip install espeakng-loader" in problems(found)
    assert "Piper: lacks espeakng-loader" in text(found)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"compute__device": "cuda:99"}, "'cuda:99' isn't on this machine.* -> correct compute.device in --setting"),
        ({"compute__device": "toaster"}, "'toaster' isn't one that torch knows"),
        ({"engines__dummy__pinned_models": "tone"}, "pinned_models names 'tone'.* -> see: .*models list dummy"),
        (
            {"compute__simulate_vram_mb": "512", "compute__vram_reserve_mb": "1024"},
            "leaves nothing of cpu: 1,073,741,824 of 536,870,912 bytes",
        ),
    ],
)
def test_what_cannot_work_is_a_problem_with_a_way_out(tmp_path: Path, texts: dict[str, str], message: str) -> None:
    found = examined(tmp_path, **texts)
    assert re.search(message, problems(found))
    for item in found["problems"]:
        assert f"  {item['what']}\n    → {item['next']}" in text(found)


def test_a_named_folder_must_be_there_and_the_first_one_writable(tmp_path: Path) -> None:
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.mkdir()
    there.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        found = gather(resolve({"paths.models": f"{there}{os.pathsep}{absent}"}, {}))
        blocked = not os.access(there, os.W_OK)
    finally:
        there.chmod(stat.S_IRWXU)
    assert f"there is no folder {absent} -> make it, or correct paths.models in --setting" in problems(found)
    assert (f"{there} can't be written to" in problems(found)) is blocked
    assert [folder["exists"] for folder in found["model_folders"]] == [True, False]


def test_an_allocator_that_is_set_already_wins_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    found = examined(tmp_path, compute__cuda_allocator="async")
    assert found["torch"]["allocator_variables"] == {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
    assert "compute.cuda_allocator=async has no effect: PYTORCH_CUDA_ALLOC_CONF is set and wins" in problems(found)
    assert "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64" in text(found)
    assert examined(tmp_path)["problems"] == []


def test_the_text_shows_all_figures(tmp_path: Path) -> None:
    found = examined(tmp_path, compute__vram_mode="low", compute__oom_fallback="on")
    shown = text(found)
    assert re.search(r"compute\.vram_mode +low +--setting", shown)
    assert "mode low, reserve 1,024 MB, limit all" in shown
    assert "page-locked: nothing (" in shown
    assert "out of memory: retry on, fallback on" in shown
    assert "problems: none" in shown
    found["memory"]["ram"] = RamFacts(total_bytes=8192 * MB, free_bytes=4096 * MB, reserve_bytes=2048 * MB)
    found["memory"]["pins"] = PinFacts(budget_bytes=4096 * MB, held_bytes=16 * MB, mode="in place", reason="")
    shown = text(found)
    assert "host copies auto, RAM 8,192 MB, 4,096 MB free, 2,048 MB kept free" in shown
    assert "page-locked: in place, at most 4,096 MB, 16 MB now" in shown
    found["memory"]["devices"].append(
        {"name": "cuda:0", "kind": "cuda", "product": "A card", "error": ""}
        | {"total_bytes": 100 * MB, "free_bytes": 60 * MB, "held_bytes": 40 * MB}
    )
    assert "cuda:0   cuda, A card, 100 MB, 60 MB free, 40 MB held by this process" in text(found)


def test_without_torch_the_rest_is_still_told(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from mizuoto_runtime.cli import main; sys.exit(main(['doctor', '--json', *sys.argv[1:]]))"
    )
    command = [sys.executable, "-c", code, "--setting", f"paths.models={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["torch"], found["memory"]) == (None, None)
    assert "torch can't be imported" in problems(found)
    assert "memory policy: not known" in text(found)


def test_a_broken_file_is_diagnosed_and_bad_flags_are_bad_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[compute]\ngpu_jobs = 99\n", encoding="utf-8")
    assert main(["doctor", "--json", "--config", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "broken.toml) is 99; it must be from 1 to 16 -> correct it" in problems(found)
    assert main(["doctor", "--setting", "compute.gpu_jobs=99"]) == 2
    assert main(["doctor", "--config", str(tmp_path / "absent.toml")]) == 2
    assert capsys.readouterr().out == ""


def test_the_command_prints_what_the_text_says(tmp_path: Path) -> None:
    flags = ["--setting", f"paths.models={tmp_path}", "--device", "cpu"]
    command = [sys.executable, "-m", "mizuoto_runtime", "doctor", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"compute\.device +cpu +--device", done.stdout)
    assert str(tmp_path) in done.stdout
