"""Phonemes and ids, against piper-tts itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from piper import PiperVoice
from piper.config import PhonemeType, PiperConfig
from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP

from mizuoto_runtime.engines.piper.text import (
    merge_clusters,
    phoneme_ids,
    phonemize,
    reading_note,
    split_phonemes,
    unknown_phonemes,
)
from mizuoto_runtime.errors import ModelFileError, UnknownName

SENTENCES: dict[str, list[str]] = json.loads(Path(__file__).with_name("sentences.json").read_text("utf-8"))
PAIRS = [(language, sentence) for language, sentences in SENTENCES.items() for sentence in sentences]
NEWER_IN_PIPER = {
    "pt-br": ["O rato roeu a roupa do rei de Roma; não é?", "Custa R$ 12,50, senhor! Às 10h30… tudo bem."],
    "sv": ["Flygande bäckasiner söka hwila på mjuka tuvor.", "Det kostar 12,50 kr, eller hur? Ja: absolut!"],
    "ru": ["Съешь ещё этих мягких французских булок, да выпей чаю.", "Он сказал: «Нет… никогда!» — и ушёл."],
    "hu": ["Árvíztűrő tükörfúrógép, ugye?", "IV. Béla 1206-ban született; király volt."],
    "fa": ["سلام، حال شما چطور است؟", "این کتاب است. قیمت آن ۲۵ تومان است!"],
}


@dataclass(frozen=True)
class Voice:
    espeak_voice: str = "en-us"
    phoneme_type: str = "espeak"
    vowel_clusters: frozenset[tuple[str, ...]] = frozenset()


def pipers_voice(voice: Voice, id_map: Mapping[str, Sequence[int]] = DEFAULT_PHONEME_ID_MAP) -> PiperVoice:
    config = PiperConfig(
        num_symbols=256,
        num_speakers=1,
        sample_rate=22_050,
        espeak_voice=voice.espeak_voice,
        phoneme_id_map=id_map,
        phoneme_type=PhonemeType(voice.phoneme_type),
        vowel_clusters=set(voice.vowel_clusters) or None,
    )
    theirs = PiperVoice(session=None, config=config)  # type: ignore[arg-type]
    theirs.use_tashkeel = False
    return theirs


def pipers_phonemes(text: str, voice: Voice) -> list[list[str]]:
    theirs = pipers_voice(voice)
    theirs.phonemize("")  # drops a character that the text before may have left behind
    return [sentence for sentence in theirs.phonemize(text) if sentence]


def test_there_are_enough_sentences() -> None:
    assert len(PAIRS) >= 140
    assert len(SENTENCES) >= 19


@pytest.mark.parametrize(("language", "sentence"), PAIRS)
def test_ids_equal_pipers(language: str, sentence: str) -> None:
    voice = Voice(language)
    expected = [pipers_voice(voice).phonemes_to_ids(part) for part in pipers_phonemes(sentence, voice)]
    assert [phoneme_ids(part, DEFAULT_PHONEME_ID_MAP) for part in phonemize(sentence, voice)] == expected


@pytest.mark.parametrize("language", sorted(NEWER_IN_PIPER))
def test_newer_dictionaries_in_piper_change_words_but_not_marks(language: str) -> None:
    voice = Voice(language)
    for sentence in NEWER_IN_PIPER[language]:
        mine, theirs = phonemize(sentence, voice), pipers_phonemes(sentence, voice)
        marks = [[phoneme for phoneme in part if phoneme in ".,:;!?"] for part in mine]
        assert marks == [[phoneme for phoneme in part if phoneme in ".,:;!?"] for part in theirs]


@pytest.mark.parametrize(
    "text",
    [
        "Say [[ tˈɛst ]] now. And more.",
        "[[ tˈɛst ]]",
        "[[a]][[b]]",
        "First. [[ x ]] Second, third. Fourth.",
        "First. Second.[[x]]",
        "Hello [[ ]] world",
        "No [[ end",
        "a ]] b [[ c ]] d]]",
        "[[ x\ny ]]",
        "[[ no end",
    ],
)
def test_raw_phonemes_like_piper(text: str) -> None:
    assert phonemize(text, Voice()) == pipers_phonemes(text, Voice())


def test_vowel_clusters_like_piper() -> None:
    voice = Voice(vowel_clusters=frozenset({("a", "ɪ"), ("e", "ɪ"), ("o", "ʊ"), ("a", "ɪ", "ə")}))
    text = "My oh my, they say the fire is late today. I know."
    assert phonemize(text, voice) == pipers_phonemes(text, voice)
    assert "aɪ" in phonemize(text, voice)[0]


def test_clusters_take_the_longest_first() -> None:
    clusters = frozenset({("a", "b"), ("a", "b", "c"), ("c", "d")})
    assert merge_clusters("abcdabx", clusters) == ["abc", "d", "ab", "x"]
    assert merge_clusters("ab", frozenset()) == ["a", "b"]


def test_text_type_gives_decomposed_characters() -> None:
    voice = Voice(phoneme_type="text")
    assert phonemize("Né? Да.", voice) == [list("Ne\u0301? Да.")] == pipers_voice(voice).phonemize("Né? Да.")
    assert phonemize("", voice) == []


@pytest.mark.parametrize("phoneme_type", ["pinyin", "hebrew", "japanese", "thai", "", "ESPEAK"])
def test_other_types_are_refused(phoneme_type: str) -> None:
    with pytest.raises(ModelFileError, match=f"{phoneme_type!r}, which can't be made here.*espeak, text"):
        phonemize("hello", Voice(phoneme_type=phoneme_type))


def test_an_unknown_voice_is_refused() -> None:
    with pytest.raises(UnknownName, match="'klingon'"):
        phonemize("hello", Voice("klingon"))


@pytest.mark.parametrize("text", ["", " ", "😀", "?!", "\n\n", "…", "[[ ]]", "[[]]"])
def test_nothing_to_speak(text: str) -> None:
    assert phonemize(text, Voice()) == []


def test_language_flags_are_removed() -> None:
    assert phonemize("Я люблю Windows.", Voice("uk")) == [list("jˈa ʎˈubʎu wˈɪndəʊz.")]


def test_missing_phonemes_are_skipped_and_named_once() -> None:
    id_map = {"^": [1], "_": [0], "$": [2], "a": [5, 6], "b": [7]}
    assert phoneme_ids("aXbXa", id_map) == [1, 0, 5, 6, 0, 7, 0, 5, 6, 0, 2]
    assert unknown_phonemes("aXbXaY", id_map) == ["X", "Y"]
    assert phoneme_ids([], id_map) == [1, 0, 2]


@pytest.mark.parametrize("symbol", ["^", "_", "$"])
def test_an_id_map_without_frame_is_refused(symbol: str) -> None:
    id_map = {key: [1] for key in "^_$a" if key != symbol}
    with pytest.raises(ModelFileError, match="phoneme_id_map lacks"):
        phoneme_ids("a", id_map)


def test_long_sentences_are_cut_at_pauses_then_spaces() -> None:
    assert split_phonemes("ab, cd ef", 8) == [list("ab, "), list("cd ef")]
    assert split_phonemes("abc de fg", 8) == [list("abc de "), list("fg")]
    assert split_phonemes("abcdefghij", 4) == [list("abcd"), list("efgh"), list("ij")]
    assert split_phonemes("abcd", 4) == [list("abcd")]
    assert split_phonemes("", 4) == []
    long = "ab, c d" * 1000
    assert "".join(char for part in split_phonemes(long) for char in part) == long
    assert max(map(len, split_phonemes(long))) <= 800


def test_arabic_comes_with_a_note() -> None:
    assert "tashkeel" in str(reading_note(Voice("ar")))
    assert reading_note(Voice("de")) is None
