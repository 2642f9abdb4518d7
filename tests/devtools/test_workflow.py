from __future__ import annotations

import json
from pathlib import Path

import pytest

from devtools.errors import DevError
from devtools.workflow import load_prompt, output_files, output_texts, with_text

PROMPT = {
    "1": {"class_type": "MizuotoSpeak", "inputs": {"text": "old", "speed": 1.0}},
    "2": {"class_type": "MizuotoSpeak", "inputs": {"text": ["3", 0]}},
    "3": {"class_type": "PrimitiveString", "inputs": {"value": "old", "text": "old"}},
}


def test_text_replaces_only_typed_in_texts_of_the_pack() -> None:
    changed = with_text(PROMPT, "new")
    assert changed["1"]["inputs"] == {"text": "new", "speed": 1.0}
    assert changed["2"] == PROMPT["2"]
    assert changed["3"] == PROMPT["3"]
    assert PROMPT["1"]["inputs"]["text"] == "old"
    with pytest.raises(DevError, match="nothing to replace"):
        with_text({"3": PROMPT["3"]}, "new")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps({"nodes": [], "links": [], "version": 0.4}), r"editor's format.*Export \(API\)"),
        ("{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        ("[]", "no workflow in API format"),
        ("{}", "no workflow in API format"),
        ('{"1": {"inputs": {}}}', "node '1' has no class_type"),
        ('{"1": 5}', "node '1' has no class_type"),
    ],
)
def test_refuses_what_is_no_prompt(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / "w.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DevError, match=message):
        load_prompt(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DevError, match="can't be read: No such file"):
        load_prompt(tmp_path / "none.json")


def test_outputs_of_an_entry() -> None:
    file = {"filename": "a.flac", "subfolder": "", "type": "output"}
    entry = {"outputs": {"4": {"audio": [file]}, "5": {"text": ["report"]}, "6": {"images": [file]}}}
    assert output_files(entry) == [file]
    assert output_texts(entry) == ["report"]
