"""Factors of working memory: they follow what is measured, belong to one workload, and survive damage to their file."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from mizuoto_runtime.memory import calibration as module
from mizuoto_runtime.memory.calibration import DECAY, MAX_FACTOR, MAX_KEYS, Calibration, Workload, fingerprint

ROOT = Path(__file__).parents[2]
MB = 1 << 20
WORKLOAD = Workload(
    engine="qwen3tts",
    component="talker",
    phase="talk",
    step="generate",
    model="1.7B",
    weights="0123456789abcdef",
    device="NVIDIA H200 torch 2.13.0",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "memory" / "calibration.json"


def written(path: Path) -> dict[str, float]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["version"] == 2
    factors: dict[str, float] = content["factors"]
    return factors


def test_a_factor_is_what_was_measured_and_a_tenth_at_most_sixteen() -> None:
    learnt = Calibration(None)
    assert learnt.factor("a") == 1.0
    learnt.note("a", 100 * MB, 150 * MB)
    assert learnt.factor("a") == pytest.approx(1.65)
    learnt.note("a", 100 * MB, 200 * MB)
    assert learnt.factor("a") == pytest.approx(2.2)
    learnt.note("a", 1, 1000)
    assert learnt.factor("a") == MAX_FACTOR
    learnt.note("b", 100 * MB, 100 * MB)
    learnt.note("c", 0, 5 * MB)
    learnt.note("d", -1, 5 * MB)
    assert [learnt.factor(key) for key in "bcd"] == [1.0, 1.0, 1.0]


def test_a_factor_falls_again_towards_what_is_measured_now() -> None:
    learnt = Calibration(None)
    learnt.note("a", MB, 4 * MB)
    learnt.note("a", MB, 2 * MB)
    assert learnt.factor("a") == pytest.approx(2.2 + DECAY * 2.2)
    previous = learnt.factor("a")
    for _ in range(200):
        learnt.note("a", MB, 2 * MB)
        assert learnt.factor("a") <= previous
        previous = learnt.factor("a")
    assert learnt.factor("a") == pytest.approx(2.2)
    for _ in range(200):
        learnt.note("a", MB, MB // 2)
    assert learnt.factor("a") == 1.0


@pytest.mark.parametrize("name", [field.name for field in fields(Workload)])
def test_trap_12_whatever_differs_has_another_key(name: str) -> None:
    assert replace(WORKLOAD, **{name: "other"}).key(MB) != WORKLOAD.key(MB)


def test_trap_12_parts_cannot_be_mistaken_for_others_and_sizes_differ() -> None:
    first, second = replace(WORKLOAD, step="a:b", model="c"), replace(WORKLOAD, step="a", model="b:c")
    assert first.key(MB) != second.key(MB)
    assert WORKLOAD.key(MB) == WORKLOAD.key(2 * MB - 1) != WORKLOAD.key(2 * MB)
    assert WORKLOAD.key(MB).startswith("qwen3tts:talker:talk:generate:")
    assert replace(WORKLOAD, model="\udce9").key(MB).isascii()


def test_trap_12_models_are_told_apart_by_layers_shapes_and_dtypes() -> None:
    def linear(width: int = 4, *, bias: bool = True) -> nn.Module:
        return nn.Sequential(nn.Linear(4, width, bias=bias), nn.Conv1d(4, 4, 3))

    known = fingerprint(linear())
    assert fingerprint(linear()) == known
    others = [linear(5), linear(bias=False), linear().half(), nn.Sequential(linear()), linear()[:1]]  # type: ignore[index]
    others.append(nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 3, stride=2)))
    assert len({known, *(fingerprint(other) for other in others)}) == len(others) + 1
    assert fingerprint(linear(), linear()) != known
    assert fingerprint(linear().to(torch.device("meta"))) == known


def test_what_was_learnt_is_there_in_the_next_process(path: Path) -> None:
    Calibration(path).note("a", MB, 2 * MB)
    assert Calibration(path).factor("a") == pytest.approx(2.2)
    assert written(path) == {"a": pytest.approx(2.2)}
    assert sorted(each.name for each in path.parent.iterdir()) == ["calibration.json", "calibration.json.lock"]


def test_only_what_changes_noticeably_is_written_at_once(path: Path) -> None:
    learnt = Calibration(path)
    learnt.note("a", MB, MB)
    assert not path.exists()
    learnt.note("a", MB, 2 * MB)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    for _ in range(10):
        learnt.note("a", MB, MB)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert learnt.save()
    assert written(path)["a"] == pytest.approx(learnt.factor("a")) == pytest.approx(1 + DECAY**10 * 1.2)
    for _ in range(200):
        learnt.note("a", MB, MB)
    learnt.save()
    assert written(path) == {}


GARBAGE: dict[str, str | bytes] = {
    "empty": "",
    "cut off": '{"version": 2, "factors": {"a": 1.',
    "not text": b"\xff\xfe\x00\x80",
    "another version": '{"version": 1, "factors": {"a": 3.0}}',
    "a newer version": '{"version": 3, "factors": {"a": 3.0}}',
    "version of another type": '{"version": "2", "factors": {"a": 3.0}}',
    "no version": '{"factors": {"a": 3.0}}',
    "a list": "[2]",
    "a number": "2",
    "factors of another type": '{"version": 2, "factors": [3.0]}',
    "no factors": '{"version": 2}',
    "nested for ever": "[" * 100_000,
    "too many digits": f'{{"version": 2, "factors": {{"a": {"9" * 5000}}}}}',
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_file_that_makes_no_sense_counts_as_empty_and_is_replaced(path: Path, name: str) -> None:
    content = GARBAGE[name]
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    learnt = Calibration(path)
    assert learnt.factor("a") == 1.0
    learnt.note("b", MB, 2 * MB)
    assert written(path) == {"b": pytest.approx(2.2)}


def test_wrong_entries_are_left_out_and_the_others_kept(path: Path) -> None:
    path.parent.mkdir(parents=True)
    wrong = '"1.5", null, true, NaN, Infinity, -2, 0.5, 1, 17, 1e400, [2], {"a": 2}, ' + "9" * 400
    entries = ", ".join(f'"{index}": {value}' for index, value in enumerate(wrong.split(", ")))
    path.write_text(f'{{"version": 2, "factors": {{{entries}, "good": 2, "better": 1.25}}}}', encoding="utf-8")
    learnt = Calibration(path)
    assert all(learnt.factor(str(index)) == 1.0 for index in range(13))
    learnt.save()
    learnt.note("new", MB, 2 * MB)
    assert written(path) == {"good": 2.0, "better": 1.25, "new": pytest.approx(2.2)}


def _parent_is_a_file(path: Path) -> None:
    path.parent.parent.mkdir()
    path.parent.write_text("")


def _is_a_folder(path: Path) -> None:
    path.mkdir(parents=True)


def _lock_is_a_folder(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text('{"version": 2, "factors": {"old": 2.0}}')
    path.with_name("calibration.json.lock").mkdir()


def _folder_is_read_only(path: Path) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("for this user no folder is read-only")
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o500)


@pytest.mark.parametrize("spoil", [_parent_is_a_file, _is_a_folder, _lock_is_a_folder, _folder_is_read_only])
def test_where_nothing_can_be_written_it_works_in_memory_and_says_so_once(
    path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    spoil(path)
    with caplog.at_level(logging.DEBUG, logger=module.__name__):
        learnt = Calibration(path)
        for factor in range(2, 8):
            learnt.note("a", MB, factor * MB)
            learnt.note(f"key {factor}", MB, factor * MB)
    assert learnt.factor("a") == pytest.approx(7.7)
    assert learnt.factor("old") == (2.0 if spoil is _lock_is_a_folder else 1.0)
    assert learnt.save()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not list(path.parent.glob("*.tmp")) if path.parent.is_dir() else True


WRITER = """
import sys
from pathlib import Path
from mizuoto_runtime.memory.calibration import Calibration

writer, learnt = int(sys.argv[1]), Calibration(Path(sys.argv[2]))
for turn in range(60):
    learnt.note("common", 1000, 2000 + 10 * writer + turn)
    learnt.note(f"{writer}-{turn}", 1000, 3000)
while not learnt.save():
    pass
"""


def test_several_processes_lose_nothing_of_each_others_notes(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(number), str(path)], cwd=ROOT) for number in range(4)
    ]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert all(1 < factor <= 16 for factor in written(path).values())
    assert [writer.returncode for writer in writers] == [0] * 4
    factors = written(path)
    assert {f"{writer}-{turn}" for writer in range(4) for turn in range(60)} | {"common"} == set(factors)
    assert 1.1 * 2.0 < factors["common"] <= 1.1 * 2.089 + 1e-9
    assert not list(path.parent.glob("*.tmp"))


def test_a_lock_that_another_process_keeps_costs_one_short_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.01)
    learnt = Calibration(path)
    learnt.note("a", MB, 2 * MB)
    holder = "from pathlib import Path; from mizuoto_runtime.memory.calibration import _locked; import sys\n"
    holder += "with _locked(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        waits: list[float] = []
        monkeypatch.setattr(module.time, "sleep", waits.append)
        for factor in range(3, 9):
            learnt.note("a", MB, factor * MB)
        once = len(waits)
        assert once > 0
        learnt.note("a", MB, 10 * MB)
        assert len(waits) == once
        assert learnt.factor("a") == pytest.approx(11.0)
        assert not learnt.save()
        assert written(path)["a"] == pytest.approx(2.2)
        process.kill()
    assert learnt.save()
    assert written(path)["a"] == pytest.approx(11.0)


def test_threads_share_one_calibration(path: Path) -> None:
    learnt = Calibration(path)

    def work(number: int) -> None:
        for turn in range(50):
            learnt.note(f"{number}-{turn}", 1000, 2000)
            assert learnt.factor(f"{number}-{turn}") == pytest.approx(2.2)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learnt.save()
    assert len(written(path)) == 200


def test_the_file_does_not_grow_for_ever() -> None:
    learnt = Calibration(None)
    for number in range(MAX_KEYS + 50):
        learnt.note(str(number), 100_000, 200_000 + number)
    assert learnt.factor("0") == 1.0
    assert learnt.factor(str(MAX_KEYS + 49)) > 2.2


def test_of_a_file_with_far_too_many_factors_the_largest_are_kept(path: Path) -> None:
    factors = {str(number): 1.5 + number / (4 * MAX_KEYS) for number in range(4 * MAX_KEYS)}
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"version": 2, "factors": factors}))
    learnt = Calibration(path)
    assert learnt.factor(str(4 * MAX_KEYS - 1)) > 2.4
    assert learnt.factor(str(3 * MAX_KEYS)) == 2.25
    assert learnt.factor(str(3 * MAX_KEYS - 1)) == 1.0
