"""What counts as a text that can be spoken."""

import re
import time
import unicodedata

import pytest

from mizuoto_runtime.errors import InputError
from mizuoto_runtime.text.checks import MAX_TEXT_CHARS, checked_text, refuse_half_pairs

CONTROLS = [chr(code) for code in range(0x100) if unicodedata.category(chr(code)) == "Cc"]
ALLOWED_CONTROLS = list("\t\n\v\f\r\x85")


@pytest.mark.parametrize(
    "text",
    ["Hello.", " padded ", "你好", "👩‍👩‍👧", "!", "a\u200db", "\ufeffHello", "line\r\nline\tend", "🙂", "e\u0301"],
)
def test_a_speakable_text_comes_back_unchanged(text: str) -> None:
    assert checked_text(text) is text


@pytest.mark.parametrize("text", ["", " ", "\n\t\r\n", "\u3000\u2003", "\u200b", "\ufeff \u200d", "\u00ad"])
def test_a_blank_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="empty"):
        checked_text(text)


@pytest.mark.parametrize("value", [None, 5, b"Hello", ["Hello"]])
def test_another_type_is_refused_by_name(value: object) -> None:
    with pytest.raises(InputError, match=type(value).__name__):
        checked_text(value)


@pytest.mark.parametrize("char", ["\ud800", "\udbff", "\udc00", "\udfff"])
def test_half_a_surrogate_pair_is_refused_with_its_place(char: str) -> None:
    with pytest.raises(InputError, match=rf"character 3 .*U\+{ord(char):04X}.*surrogate"):
        checked_text(f"ab{char}c")


@pytest.mark.parametrize("char", [char for char in CONTROLS if char not in ALLOWED_CONTROLS], ids=ascii)
def test_a_control_character_is_refused_with_its_place(char: str) -> None:
    with pytest.raises(InputError, match=rf"character 2 .*U\+{ord(char):04X}.*control"):
        checked_text(f"a{char}")


def test_exactly_the_control_and_surrogate_characters_are_refused() -> None:
    refused = set()
    tried = [chr(code) for code in (*range(0x3100), *range(0xD700, 0xE100), *range(0xFE00, 0x10000))]
    for char in tried:
        try:
            checked_text(f"a{char}")
        except InputError:
            refused.add(char)
    expected = {char for char in tried if unicodedata.category(char) in ("Cc", "Cs")}
    assert refused == expected - set(ALLOWED_CONTROLS)


def test_half_a_surrogate_pair_is_refused_wherever_it_stands() -> None:
    refuse_half_pairs("a \U0001f600 b")
    with pytest.raises(InputError, match=r"half a surrogate pair \(U\+DE00\); remove it"):
        refuse_half_pairs("a \ude00")


def test_the_longest_text_passes_and_a_longer_one_is_refused_with_the_figures() -> None:
    assert checked_text("a" * MAX_TEXT_CHARS)
    with pytest.raises(InputError, match=re.escape(f"{MAX_TEXT_CHARS + 1:,} characters; {MAX_TEXT_CHARS:,}")):
        checked_text("a" * (MAX_TEXT_CHARS + 1))


def test_the_longest_text_takes_well_under_a_second() -> None:
    text = "The end. " * (MAX_TEXT_CHARS // 9)
    started = time.process_time()
    checked_text(text)
    assert time.process_time() - started < 1.0
