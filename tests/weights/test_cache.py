"""The cache of converted weights: right content or none, whatever happens to its files."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mizuoto_runtime.weights import cache as module
from mizuoto_runtime.weights.cache import FOLDER, WeightCache, identity
from mizuoto_runtime.weights.raw import RawTensor
from mizuoto_runtime.weights.store import ALIGNMENT_BYTES

TENSORS = {
    "a.weight": RawTensor("x", "float32", (2, 2), memoryview(torch.arange(4.0).numpy().tobytes())),
    "b": RawTensor("y", "int64", (1,), memoryview(torch.tensor([7]).numpy().tobytes())),
    "none": RawTensor("z", "float32", (0, 3), memoryview(b"")),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "voice.onnx"
    path.write_bytes(b"the first content")
    return path


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all files were written long ago."""
    monkeypatch.setattr(module, "YOUNG_NS", -(10**18))


def stored(source: Path, form: str = "test-1") -> Path:
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    path = WeightCache(source, form).store(digest, TENSORS, {"made": "by a test"})
    assert path is not None
    return path


def test_what_is_stored_is_found_and_read_by_others(source: Path) -> None:
    path = stored(source)
    assert WeightCache(source, "test-1").find() == path
    loaded = load_file(path)
    assert {name: tensor.tolist() for name, tensor in loaded.items()} == {
        "a.weight": [[0.0, 1.0], [2.0, 3.0]],
        "b": [7],
        "none": [],
    }
    header_bytes = int.from_bytes(path.read_bytes()[:8], "little")
    assert (8 + header_bytes) % ALIGNMENT_BYTES == 0
    assert not list(path.parent.glob("*.tmp"))


def test_nothing_is_found_before(source: Path) -> None:
    assert WeightCache(source, "test-1").find() is None
    assert not (source.parent / FOLDER).exists()


def test_another_form_is_outdated(source: Path) -> None:
    stored(source)
    assert WeightCache(source, "test-2").find() is None


def test_a_source_of_other_content_is_not_served(source: Path) -> None:
    stored(source)
    source.write_bytes(b"the other content")
    assert WeightCache(source, "test-1").find() is None


def test_a_source_with_its_old_times_back_is_not_served(source: Path, trusted: None) -> None:
    stored(source)
    stat = source.stat()
    time.sleep(0.02)
    source.write_bytes(b"the other content")
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert source.stat().st_size == stat.st_size
    assert WeightCache(source, "test-1").find() is None


def test_a_source_that_was_only_touched_is_served_and_noted(source: Path, trusted: None) -> None:
    path = stored(source)
    note = WeightCache(source, "test-1").note
    before = note.read_bytes()
    os.utime(source, ns=(1, 1))
    assert WeightCache(source, "test-1").find() == path
    assert note.read_bytes() != before


def test_files_that_are_known_are_not_hashed_again(
    source: Path, trusted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(source)
    monkeypatch.setattr(module, "sha256", lambda path: pytest.fail("hashed"))
    assert WeightCache(source, "test-1").find() == path


def test_files_written_just_now_are_hashed(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(source)
    assert identity(source) is None
    hashed: list[Path] = []
    digest = module.sha256
    monkeypatch.setattr(module, "sha256", lambda path: hashed.append(path) or digest(path))
    assert WeightCache(source, "test-1").find() is not None
    assert len(hashed) == 2


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "garbage", "remove"])
def test_damaged_weights_are_not_served(source: Path, trusted: None, damage: str) -> None:
    path = stored(source)
    content = bytearray(path.read_bytes())
    time.sleep(0.02)
    if damage == "remove":
        path.unlink()
    else:
        content[-3] ^= 1
        damaged = {"flip": bytes(content), "truncate": bytes(content[:-1]), "empty": b"", "garbage": b"?" * 500}
        path.write_bytes(damaged[damage])
    assert WeightCache(source, "test-1").find() is None


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"form": "test-1"}',
        b'{"form": "test-1", "source_sha256": "../../x", "weights_sha256": 7}',
        json.dumps({"form": "test-1", "source_sha256": "0" * 64, "weights_sha256": "0" * 64}).encode(),
        json.dumps({"form": "test-1", "source_sha256": "/" * 64, "weights_sha256": "0" * 64}).encode(),
    ],
)
def test_damaged_notes_are_not_believed(source: Path, note: bytes) -> None:
    stored(source)
    WeightCache(source, "test-1").note.write_bytes(note)
    assert WeightCache(source, "test-1").find() is None


def test_a_folder_that_cannot_be_written_is_no_error(source: Path) -> None:
    (source.parent / FOLDER).write_bytes(b"a file where the folder would be")
    assert WeightCache(source, "test-1").store("0" * 64, TENSORS, {}) is None


def test_a_full_disk_leaves_nothing_behind(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_safetensors", full)
    assert WeightCache(source, "test-1").store("0" * 64, TENSORS, {}) is None
    assert list((source.parent / FOLDER).iterdir()) == []


def test_older_conversions_and_abandoned_files_are_removed(source: Path) -> None:
    old = stored(source)
    other = source.with_name("voice.onnx.extra.onnx")
    other.write_bytes(b"another voice")
    kept = stored(other)
    abandoned, fresh = old.parent / "voice.onnx.1-aa.tmp", old.parent / "voice.onnx.2-bb.tmp"
    for path in (abandoned, fresh):
        path.write_bytes(b"")
    os.utime(abandoned, (1, 1))
    source.write_bytes(b"the second content")
    new = stored(source)
    assert not old.exists() and not abandoned.exists()
    assert new.exists() and kept.exists() and fresh.exists()


def test_writers_at_the_same_time_leave_a_whole_file(source: Path) -> None:
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(10):
                stored(source)
                found = WeightCache(source, "test-1").find()
                assert found is not None and load_file(found)["b"].tolist() == [7]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert not list((source.parent / FOLDER).glob("*.tmp"))
