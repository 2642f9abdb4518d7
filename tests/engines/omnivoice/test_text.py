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
from mizuoto_runtime.engines.omnivoice.text import (
    MARKS,
    TextTokenizer,
    clean_text,
    finish_reference_text,
    load_tokenizer,
)
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


def tokenizer_of(folder: Path, *, drop: int = 0, whole: dict[str, Any] | None = None, **settings: Any) -> TextTokenizer:
    """The golden tokenizer without its last `drop` added tokens, with further entries in its two files."""
    content = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"] = content["added_tokens"][: len(content["added_tokens"]) - drop]
    content["model"] |= (whole or {}).pop("model", {})
    (folder / "tokenizer.json").write_text(json.dumps(content | (whole or {})), encoding="utf-8")
    config = json.loads((FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config | settings), encoding="utf-8")
    return load_tokenizer(folder, VOCAB)


ADDED = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]


@pytest.mark.parametrize(
    "settings",
    [
        {"added_tokens_decoder": {str(token["id"]): token for token in ADDED}},
        {"additional_special_tokens": list(MARKS)},
        {"extra_special_tokens": {mark: mark for mark in MARKS}},
        {"extra_special_tokens": [{"content": mark, "__type": "AddedToken"} for mark in MARKS]},
    ],
)
def test_tokens_that_only_the_settings_name_are_known(tmp_path: Path, settings: dict[str, Any]) -> None:
    wanted = load_tokenizer(FOLDER, VOCAB)
    found = tokenizer_of(tmp_path, drop=len(MARKS), **settings)
    assert found.spoken("Hello [sigh]") == wanted.spoken("Hello [sigh]")
    assert found.style("en", "", denoise=True) == wanted.style("en", "", denoise=True)


def test_settings_that_name_more_tokens_than_the_model_knows_are_no_harm(tmp_path: Path) -> None:
    tokenizer_of(tmp_path, extra_special_tokens=[f"<|{number}|>" for number in range(VOCAB)])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"extra_special_tokens": ["\ud800"]}, "content is .* half a surrogate pair"),
        ({"extra_special_tokens": [5]}, "is 5; it must be an object"),
        ({"added_tokens_decoder": {"5": {"content": 7}}}, r"added_tokens_decoder\.5\.content is 7; a text is needed"),
        ({"added_tokens_decoder": []}, r"added_tokens_decoder is \[\]; it must be an object"),
    ],
)
def test_settings_that_name_no_tokens_are_refused(tmp_path: Path, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelFileError, match=problem):
        tokenizer_of(tmp_path, **settings)


def test_what_a_tokenizer_puts_around_a_text_is_around_the_style_alone(tmp_path: Path) -> None:
    start = next(token["id"] for token in ADDED if token["content"] == "<|im_start|>")
    frame: dict[str, Any] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "start", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"start": {"id": "start", "ids": [start], "tokens": ["<|im_start|>"]}},
    }
    wanted = load_tokenizer(FOLDER, VOCAB)
    found = tokenizer_of(tmp_path, whole={"post_processor": frame})
    assert found.spoken("Hello [sigh] you") == wanted.spoken("Hello [sigh] you")
    assert found.style("en", "", denoise=True) == [start, *wanted.style("en", "", denoise=True)]


def test_a_qwen_tokenizer_takes_from_its_file_what_upstream_does(tmp_path: Path) -> None:
    wanted = load_tokenizer(FOLDER, VOCAB).spoken("Hello there, how are you?")
    assert tokenizer_of(tmp_path, whole={"model": {"dropout": 0.9}}).spoken("Hello there, how are you?") == wanted
    spaced = tokenizer_of(tmp_path, add_prefix_space=True).spoken("Hello there, how are you?")
    assert spaced == [428, 363, 269, 394, 220, 11, 365, 396, 303, 220, 30, 429]


def test_a_file_on_which_the_tokenizers_package_gives_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: no tokenizer, or truncated"):
        tokenizer_of(tmp_path, whole={"model": {"continuing_subword_prefix": "##"}})


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
