"""Which marks end a clause, against the espeak-ng in piper-tts, character by character and in random mixtures."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path
from types import ModuleType

import piper
import pytest
from piper import espeakbridge

from mizuoto_runtime.text.clauses import PLAIN_END, SENTENCE_END, Ending, ending
from mizuoto_runtime.text.espeak import read_clauses

MARKS = [
    ".",
    "..",
    "...",
    "?",
    "?!",
    "!",
    ",",
    ":",
    ";",
    "…",
    " – ",
    "—",
    "。",
    "、",
    "？",
    "؟",
    "،",
    "।",
    "॥",
    "¿",
    "՞",
    "·",
]
WORDS = ["one", "Two", "three", "IV", "5", "3.14", "Dr", "a", "(so)", "«x»", '"y"', "e.g", "ÄÖ", "два", "你好", "B"]
GAPS = ["", " ", " ", " ", "  ", "\n", "\n\n", "\u2029", "\u00a0", "\u00ad"]


@pytest.fixture(scope="module")
def bridge() -> ModuleType:
    espeakbridge.initialize(str(Path(piper.__file__).parent / "espeak-ng-data"))
    return espeakbridge


def pipers_clauses(bridge: ModuleType, text: str, voice: str) -> list[tuple[str, str, bool]]:
    bridge.set_voice(voice)
    bridge.get_phonemes("")  # drops a character that the text before may have left behind
    clauses: list[tuple[str, str, bool]] = bridge.get_phonemes(text)
    return clauses


def test_every_mark_of_every_script(bridge: ModuleType) -> None:
    chars = [chr(code) for code in range(0x21, 0x20000) if unicodedata.category(chr(code))[0] in "PSZ"]
    chars += list("\u2488\u249b\u0eaf\u24ea")
    different = []
    for char in chars:
        theirs = [clause[1:] for clause in pipers_clauses(bridge, f"a{char} B", "en-us")]
        if len(theirs) > 1 and theirs[0] != tuple(ending(f"a{char} ", "B", roman_ordinals=False)):
            different.append((char, theirs[0]))
    assert different == []
    assert sum(ending(f"a{char} ", "B", roman_ordinals=False) != PLAIN_END for char in chars) > 100


@pytest.mark.parametrize("voice", ["de", "it", "cmn", "tr", "nl", "cs"])
def test_random_mixtures_divide_alike(bridge: ModuleType, voice: str) -> None:
    chooser = random.Random(voice)
    for _ in range(150):
        parts = [chooser.choice(WORDS) + chooser.choice([*MARKS, "", ""]) + chooser.choice(GAPS) for _ in range(12)]
        text = "".join(parts[: chooser.randrange(1, 13)])
        assert [tuple(clause) for clause in read_clauses(text, voice)] == pipers_clauses(bridge, text, voice), repr(
            text
        )


@pytest.mark.parametrize("voice", ["de", "it", "ar"])
def test_clauses_longer_than_the_buffer(bridge: ModuleType, voice: str) -> None:
    chooser = random.Random(voice)
    for _ in range(30):
        words = chooser.choices(
            ["eins", "zwei", "e.g. ", "x.y", "Drei", "vier, ", "fünf", "1.", "a.m. noon", "-"], k=700
        )
        text = " ".join(words).replace(", ", "" if chooser.random() < 0.7 else ", ")
        assert [tuple(clause) for clause in read_clauses(text, voice)] == pipers_clauses(bridge, text, voice)


@pytest.mark.parametrize(
    ("read", "following", "expected"),
    [
        ("Hello, ", "w", Ending(",", False)),
        ("Hello. ", "W", Ending(".", True)),
        ("Hello?!? ", "W", Ending("?", True)),
        ("Hello... ", "W", PLAIN_END),
        ("Hello.\n\n", "W", SENTENCE_END),
        ("Hello", "", SENTENCE_END),
        ("Hello.", "", Ending(".", True)),
        ("?!", "", SENTENCE_END),
        ("word " * 150 + "e.g. ", "a", PLAIN_END),
    ],
)
def test_endings(read: str, following: str, expected: Ending) -> None:
    assert ending(read, following, roman_ordinals=False) == expected


def test_a_dot_after_a_roman_number_may_make_an_ordinal() -> None:
    assert ending("Ludwig XIV.", "", roman_ordinals=True) == SENTENCE_END
    assert ending("Ludwig XIV.", "", roman_ordinals=False) == Ending(".", True)
