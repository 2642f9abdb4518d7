"""Texts in a model's JSON files that nothing could take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mizuoto_runtime.errors import ModelFileError
from mizuoto_runtime.weights.entries import read_entry


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"eos_token": {"content": text}}), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"config\.json: eos_token\.content is .*half a surrogate pair") as refused:
        read_entry(path).entry("eos_token").text("content")
    assert str(refused.value).isascii()
