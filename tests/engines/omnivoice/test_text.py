"""Texts, durations, chunks, languages and attributes against upstream, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mizuoto_runtime.engines.omnivoice.chunks import chunk_text
from mizuoto_runtime.engines.omnivoice.instruct import CATEGORIES, KNOWN, instruction, parse_instruct
from mizuoto_runtime.engines.omnivoice.languages import ids_by_name, language_id, language_tags
from mizuoto_runtime.engines.omnivoice.speech import Said
from mizuoto_runtime.engines.omnivoice.text import clean_text, finish_reference_text, load_tokenizer
from mizuoto_runtime.errors import InputError, ModelFileError
from tests.golden.omnivoice.checkpoint import FOLDER

RECORDED: dict[str, Any] = json.loads((FOLDER / "text.json").read_text(encoding="utf-8"))
VOCAB = 448


def test_texts_are_cleaned_as_upstream_does() -> None:
    for text, before, wanted in RECORDED["cleaned"]:
        assert clean_text(text, before) == wanted
    for text, wanted in RECORDED["ended"]:
        assert finish_reference_text(text) == wanted


def test_chunks_are_upstreams() -> None:
    for text, most, wanted in RECORDED["chunks"]:
        assert chunk_text(text, most) == wanted


def test_durations_are_upstreams() -> None:
    import torch

    for said, frames, text, speed, wanted in RECORDED["frames"]:
        assert Said(torch.zeros(8, frames), said).frames(text, speed) == wanted


def test_languages_are_upstreams() -> None:
    for language, wanted in RECORDED["languages"]:
        found, note = language_id(language)
        assert found == (wanted or "")
        assert bool(note) is (wanted is None and language.strip().lower() not in ("", "none"))


def test_there_are_as_many_languages_as_promised() -> None:
    assert len(ids_by_name()) == len(language_tags()) == 646


@pytest.mark.parametrize(
    ("language", "hint"), [("EN", "'en'"), ("Mandarin", "did you mean"), ("Englisch", "'english'"), ("?", "646 known")]
)
def test_an_unknown_language_is_said_with_what_is_near(language: str, hint: str) -> None:
    assert hint in language_id(language)[1]


def test_without_anything_near_the_note_is_still_two_sentences() -> None:
    assert "so the model was told none. A name or an id" in language_id("????")[1]


def test_attributes_are_upstreams() -> None:
    for given, text, wanted in RECORDED["instructs"]:
        if wanted is None:
            with pytest.raises(InputError):
                parse_instruct(given)
        else:
            assert instruction(parse_instruct(given), text) == wanted


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("femal, lowpitch", r"'femal' \(did you mean 'female'\?\); 'lowpitch' \(did you mean 'low pitch'\?\)\. Known"),
        ("zzz", r"unknown voice attributes: 'zzz'\. Known"),
        ("male, 女", "'male' and '女' are both a voice's gender; leave one"),
        ("indian accent, 东北话", "accent of English and a dialect of Chinese"),
    ],
)
def test_wrong_attributes_are_said(given: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_instruct(given)


def test_each_attribute_has_one_category() -> None:
    assert len(KNOWN) == len(set(KNOWN)) == 48
    assert set(CATEGORIES) == {"gender", "age", "pitch", "style", "accent", "dialect"}


def test_a_tags_ids_dont_depend_on_what_is_around() -> None:
    tokenizer = load_tokenizer(FOLDER, VOCAB)
    alone = tokenizer.spoken("[laughter]")[1:-1]
    for text in ("x[laughter]", "你[laughter]好", "a [laughter] b", "[laughter][sigh]"):
        ids = tokenizer.spoken(text)
        assert any(ids[start : start + len(alone)] == alone for start in range(len(ids)))


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InputError, match="surrogate pair"):
        load_tokenizer(FOLDER, VOCAB).spoken("a\ud800")


def test_a_tokenizer_that_isnt_the_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="there is no such file"):
        load_tokenizer(tmp_path, VOCAB)
    path = tmp_path / "tokenizer.json"
    whole = (FOLDER / "tokenizer.json").read_text(encoding="utf-8")
    path.write_text(whole[:-9], encoding="utf-8")
    with pytest.raises(ModelFileError, match="truncated"):
        load_tokenizer(tmp_path, VOCAB)
    path.write_text(whole.replace("<|denoise|>", "<|denoised|>"), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"lacks the token <\|denoise\|>"):
        load_tokenizer(tmp_path, VOCAB)
    with path.open("r+b") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: larger than 67,108,864 bytes"):
        load_tokenizer(tmp_path, VOCAB)
    shutil.copy(FOLDER / "tokenizer.json", path)
    with pytest.raises(ModelFileError, match="the model knows 300"):
        load_tokenizer(tmp_path, 300)
