"""Tokens, ids, chunks and the endings of reference texts, against upstream's."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mizuoto_runtime.engines.f5tts.text import (
    Vocabulary,
    chunk_text,
    finish_reference_text,
    max_chars,
    read_vocabulary,
    space_reference_text,
    to_tokens,
)
from mizuoto_runtime.errors import InputError, MissingDependency, ModelFileError
from tests.engines.f5tts.recorded import GOLDEN
from tests.golden.f5tts import text_cases

CASES = list(zip(text_cases.TEXTS, GOLDEN["tokens"], strict=True))
CHINESE = [text for text in text_cases.TEXTS if any("\u3400" <= char <= "\u9fff" or char == "〇" for char in text)]
OTHERS = [(text, tokens) for text, tokens in CASES if text not in CHINESE]


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rjieba", "jieba", "pypinyin"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(("text", "tokens"), CASES)
def test_tokens_are_upstreams(text: str, tokens: list[str]) -> None:
    assert to_tokens(text) == tokens


def test_the_cases_are_of_both_kinds() -> None:
    assert len(CHINESE) >= 14 and len(OTHERS) >= 14


@pytest.mark.parametrize(("text", "tokens"), OTHERS)
def test_text_without_chinese_needs_no_package(no_packages: None, text: str, tokens: list[str]) -> None:
    assert to_tokens(text) == tokens


@pytest.mark.parametrize("text", ["你好", "abc 中", "漢字かな", "〇", "豈", "㐀"])
@pytest.mark.parametrize("package", ["rjieba", "pypinyin"])
def test_chinese_without_its_packages_is_an_error_that_names_them(
    monkeypatch: pytest.MonkeyPatch, text: str, package: str
) -> None:
    for name in ("jieba", package):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependency, match=f"needs the package {package}.*pip install rjieba pypinyin"):
        to_tokens(text)


@pytest.mark.parametrize("text", CHINESE[:-3])
def test_jieba_cuts_as_rjieba_does(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    expected = to_tokens(text)
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports setuptools' deprecated pkg_resources
        assert to_tokens(text) == expected


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("abcXYZ019+#&._%- ,;:'\"\r\n\té—…〜あ한ж😀cC#T&"), max_size=24))
def test_plain_words_are_cut_as_rjieba_cuts_them(text: str) -> None:
    """Chinese before and after it makes rjieba cut all of the run."""
    import rjieba

    from mizuoto_runtime.engines.f5tts.text import _words

    assert list(_words(text)) == rjieba.cut(text)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("你好不是一个银行东西abc3D-_.+#T恤&，。 \u3007\uf900\U00020bb7\u9fff"), max_size=24))
def test_words_among_chinese_are_cut_as_rjieba_cuts_them(text: str) -> None:
    import rjieba

    from mizuoto_runtime.engines.f5tts.text import _words

    assert list(_words(text)) == rjieba.cut(text)


@pytest.mark.parametrize("number", range(len(text_cases.CHUNKED)))
def test_chunks_are_upstreams(number: int) -> None:
    text = text_cases.CHUNKED[number]
    assert [chunk_text(text, size) for size in text_cases.MAX_CHARS] == GOLDEN["chunks"][number]


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab你é，。. ,!；"), max_size=80), st.integers(-2, 60))
def test_chunks_hold_all_the_text_and_are_no_longer_than_asked(text: str, size: int) -> None:
    chunks = chunk_text(text, size)
    assert "".join("".join(chunks).split()) == "".join(text.split())
    for chunk in chunks:
        assert len(chunk.encode()) <= size + 1 or len(chunk_text(chunk, 0)) <= 1


def test_a_reference_text_ends_as_upstream_ends_it() -> None:
    assert [finish_reference_text(text) for text in text_cases.ENDINGS] == GOLDEN["endings"]


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000"])
def test_a_missing_reference_text_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match=r"reference's text is missing.*word for word.*isn't there yet"):
        finish_reference_text(text)


def test_a_reference_text_that_cannot_be_spoken_is_an_error() -> None:
    with pytest.raises(InputError, match="control character"):
        finish_reference_text("Hi\x00.")


@pytest.mark.parametrize(("text", "spaced"), [("Hi. ", "Hi.  "), ("嗨。", "嗨。"), ("é", "é"), ("x", "x ")])
def test_a_reference_text_in_ascii_gets_one_more_space(text: str, spaced: str) -> None:
    assert space_reference_text(text) == spaced


@pytest.mark.parametrize(
    ("text", "seconds", "speed", "most"),
    [("Hi. ", 2.0, 1.0, 40), ("嗨。", 3.0, 0.5, 19), ("Hi. ", 22.0, 1.0, 0), ("x" * 100, 0.3, 2.0, 14466)],
)
def test_a_chunk_is_as_long_as_the_reference_leaves_room(text: str, seconds: float, speed: float, most: int) -> None:
    assert max_chars(text, seconds, speed) == most


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_vocabulary_numbers_its_lines(tmp_path: Path) -> None:
    vocabulary = read_vocabulary(write(tmp_path / "vocab.txt", " \n!\nni3\né\n你\n".encode()))
    assert vocabulary.ids == {" ": 0, "!": 1, "ni3": 2, "é": 3, "你": 4} and vocabulary.size == 5
    assert vocabulary.to_ids(["ni3", "é", "?", " ", "", "ni"]) == [2, 3, 0, 0, 0, 0]


def test_windows_line_ends_and_twice_the_same_token(tmp_path: Path) -> None:
    vocabulary = read_vocabulary(write(tmp_path / "vocab.txt", b" \r\na\r\nb\r\na\r\n"))
    assert vocabulary.ids == {" ": 0, "a": 3, "b": 2} and vocabulary.size == 3


def test_a_last_line_without_an_end_loses_its_last_character_as_it_does_upstream(tmp_path: Path) -> None:
    assert read_vocabulary(write(tmp_path / "vocab.txt", b" \na\nni3")).ids == {" ": 0, "a": 1, "ni": 2}


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"a\n\xff\xfe", "isn't UTF-8"), (None, "no such")]
)
def test_a_vocabulary_that_is_none_is_an_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        read_vocabulary(path)


def test_a_vocabulary_larger_than_any_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "vocab.txt", b" \na\n")
    with path.open("ab") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ModelFileError, match=r"vocab\.txt: larger than 67,108,864 bytes"):
        read_vocabulary(path)


def test_ids_of_nothing() -> None:
    assert Vocabulary({}).to_ids([]) == []
