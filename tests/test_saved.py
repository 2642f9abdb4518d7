"""Settings kept by a server: what may be changed, what is kept, what a broken file does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mizuoto_runtime.errors import InputError, UnknownName
from mizuoto_runtime.saved import SavedSettings

RETRY = "compute.oom_retry"
LIMIT = "compute.vram_limit_mb"
ENDPOINT = "fetch.endpoint"
PINNED = "engines.dummy.pinned_models"


def test_a_change_is_in_force_at_once_and_kept(tmp_path: Path) -> None:
    saved = SavedSettings(tmp_path / "mizuoto" / "settings.json", {})
    settings = saved.change({RETRY: False, LIMIT: 2048, PINNED: ["tones"]})
    assert (settings.flag(RETRY), settings.integer(LIMIT), settings.names(PINNED)) == (False, 2048, ("tones",))
    again = SavedSettings(saved.path, {}).resolve()
    assert again.values == settings.values
    assert (again.sources[RETRY], again.sources["compute.kv_cache"]) == ("saved", "default")


def test_none_takes_a_saved_value_back(tmp_path: Path) -> None:
    saved = SavedSettings(tmp_path / "settings.json", {})
    saved.change({LIMIT: 2048, RETRY: False})
    settings = saved.change({LIMIT: None})
    assert (settings.integer(LIMIT), settings.sources[LIMIT], settings.flag(RETRY)) == (0, "default", False)
    assert json.loads(saved.path.read_text()) == {RETRY: False}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({LIMIT: -1}, "must be from 0 to"),
        ({LIMIT: "much"}, "must be a whole number"),
        ({RETRY: 1}, "must be on or off"),
        ({"compute.vram_mode": "huge"}, "Known: .*normal"),
        ({"compute.nothing": 1}, "unknown setting"),
        ({"compute.device": "cuda:0"}, "MIZUOTO_COMPUTE__DEVICE.*start again"),
        ({RETRY: False, "paths.models": "/"}, "read once, at the start"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_kept(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    saved = SavedSettings(tmp_path / "settings.json", {})
    with pytest.raises((InputError, UnknownName), match=message):
        saved.change(changes)
    assert not saved.path.exists()
    assert saved.resolve().sources[RETRY] == "default"


def test_the_environment_wins_and_locks(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    SavedSettings(path, {}).change({LIMIT: 2048})
    saved = SavedSettings(path, {"MIZUOTO_COMPUTE__VRAM_LIMIT_MB": "4096"})
    assert saved.resolve().integer(LIMIT) == 4096
    facts = {item["name"]: item for item in saved.facts()}
    assert facts[LIMIT]["locked"] and "MIZUOTO_COMPUTE__VRAM_LIMIT_MB" in facts[LIMIT]["lock_reason"]
    assert not facts[RETRY]["locked"]
    with pytest.raises(InputError, match="environment variable MIZUOTO_COMPUTE__VRAM_LIMIT_MB is set and wins"):
        saved.change({LIMIT: 1})


def test_a_variable_of_other_programs_locks_too(tmp_path: Path) -> None:
    saved = SavedSettings(tmp_path / "settings.json", {})
    assert saved.change({ENDPOINT: "https://mirror.example/"}).text(ENDPOINT) == "https://mirror.example"
    with pytest.raises(InputError, match="must be an https or http address"):
        saved.change({ENDPOINT: "mirror.example"})
    locked = SavedSettings(saved.path, {"HF_ENDPOINT": "https://other.example"})
    facts = {item["name"]: item for item in locked.facts()}[ENDPOINT]
    assert (facts["type"], facts["value"], facts["source"]) == ("address", "https://other.example", "HF_ENDPOINT")
    with pytest.raises(InputError, match="environment variable HF_ENDPOINT is set and wins"):
        locked.change({ENDPOINT: "https://mirror.example"})
    assert saved.change({ENDPOINT: None}).text(ENDPOINT) == facts["default"] == "https://huggingface.co"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"compute.vram_limit_mb": -5, "gone": 1}', b"null"])
def test_a_broken_file_stops_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    saved = SavedSettings(path, {})
    assert saved.resolve().integer(LIMIT) == 0
    assert saved.change({LIMIT: 5}).integer(LIMIT) == 5


def test_what_was_right_in_a_broken_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({LIMIT: 7, "gone": 1, RETRY: "no"}))
    assert SavedSettings(path, {}).resolve().integer(LIMIT) == 7


def test_a_folder_that_cannot_be_written_to_says_so_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    saved = SavedSettings(tmp_path / "file" / "settings.json", {})
    with pytest.raises(InputError, match=r"can't be kept in .*nothing is changed"):
        saved.change({LIMIT: 5})
    assert saved.resolve().integer(LIMIT) == 0


def test_every_setting_has_a_label_of_its_own() -> None:
    labels = [item["label"] for item in SavedSettings(Path("absent"), {}).facts()]
    assert all(labels) and len(set(labels)) == len(labels)
