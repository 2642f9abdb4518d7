"""The tokenizer's files, and texts that are normalised. Ids of whole texts are compared in `test_golden.py`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mizuoto_runtime.engines.voxcpm.normalise import normalise
from mizuoto_runtime.engines.voxcpm.text import SETTINGS, TOKENIZER, described, load_tokenizer, spaced
from mizuoto_runtime.errors import InputError, ModelFileError, ModelNotFound
from tests.golden.voxcpm.cases import VOCAB
from tests.golden.voxcpm.checkpoint import FOLDER

RECORDED: dict[str, Any] = json.loads((FOLDER / "normalised.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (TOKENIZER, SETTINGS):
        shutil.copy(FOLDER / name, tmp_path)
    return tmp_path


def change(path: Path, how: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    how(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_spaces_and_descriptions() -> None:
    assert spaced(" a \n\n b\t c ") == " a b c "
    assert described("text", " slow ") == "(slow)text"
    assert described("text", "  ") == "text"


def test_chinese_pieces_are_read_character_by_character(folder: Path) -> None:
    tokenizer = load_tokenizer(folder, VOCAB)
    assert "今天" in tokenizer.split
    today = [tokenizer.tokenizer.token_to_id(char) for char in "今天"]
    assert tokenizer.encode("今天") == today, "its space is lost with the piece"


def test_half_a_surrogate_pair_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="half a surrogate pair"):
        load_tokenizer(folder, VOCAB).encode("a\ud800")


def test_added_tokens_may_stand_in_either_file(folder: Path) -> None:
    expected = load_tokenizer(folder, VOCAB).encode("a <|background|> b")
    change(folder / SETTINGS, lambda content: content.pop("added_tokens_decoder"))
    assert load_tokenizer(folder, VOCAB).encode("a <|background|> b") == expected


def test_merges_may_be_texts(folder: Path) -> None:
    expected = load_tokenizer(folder, VOCAB).encode("Hello there")
    change(
        folder / TOKENIZER,
        lambda content: content["model"].update(merges=[" ".join(pair) for pair in content["model"]["merges"]]),
    )
    assert load_tokenizer(folder, VOCAB).encode("Hello there") == expected


@pytest.mark.parametrize(
    ("name", "how", "problem"),
    [
        (TOKENIZER, lambda content: content["model"].update(type="Unigram"), "model.type is 'Unigram'; known: BPE"),
        (TOKENIZER, lambda content: content["model"].update(vocab=[1]), "vocab must be an object"),
        (TOKENIZER, lambda content: content["model"]["vocab"].update(x=9999), "has ids 0 to 9999; the model knows 720"),
        (TOKENIZER, lambda content: content["model"].update(merges=[["a"]]), "which is no pair"),
        (TOKENIZER, lambda content: content["model"].update(merges=["q zzz"]), "don't fit the vocabulary"),
        (SETTINGS, lambda content: content["added_tokens_decoder"].update(x={}), "is no id"),
        (SETTINGS, lambda content: content["added_tokens_decoder"].update({"1" * 5000: {}}), "is no id"),
    ],
)
def test_files_that_are_wrong_are_said(
    folder: Path, name: str, how: Callable[[dict[str, Any]], object], problem: str
) -> None:
    change(folder / name, how)
    with pytest.raises(ModelFileError, match=problem):
        load_tokenizer(folder, VOCAB)


@pytest.mark.parametrize("name", [TOKENIZER, SETTINGS])
def test_a_file_that_is_not_there_is_said(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelNotFound, match=f"{name}: there is no such file"):
        load_tokenizer(folder, VOCAB)


@pytest.mark.parametrize("number", range(len(RECORDED["texts"])))
def test_a_normalised_text_is_upstreams(number: int) -> None:
    """Where upstream fails there is a text all the same."""
    case = RECORDED["texts"][number]
    made = normalise(case["text"])
    assert made == (case["ours"] if case["upstream"] is None else case["upstream"])
    assert made.strip()


def test_some_texts_make_upstream_fail_and_most_do_not() -> None:
    failing = [case for case in RECORDED["texts"] if case["upstream"] is None]
    assert 2 <= len(failing) < len(RECORDED["texts"]) / 2
