"""espeak-ng through its library: bad input, threads, and leaving the process as it was."""

from __future__ import annotations

import ctypes
import locale
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mizuoto_runtime.errors import MissingDependency, UnknownName
from mizuoto_runtime.text import espeak, espeak_library
from mizuoto_runtime.text.espeak import Espeak, read_clauses

ROOT = Path(__file__).resolve().parents[2]
TEXT = "Hello world, this is the end. Really?"
PHONEMES = ["həlˈoʊ wˈɜːld", "ðɪs ɪz ðɪʲ ˈɛnd", "ɹˈiəli"]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A copy of the installed package, to damage."""
    return Path(shutil.copytree(espeak_library.installed_folder(), tmp_path / "wheel"))


def phonemes_of(clauses: list[espeak.Clause]) -> list[str]:
    return [clause.phonemes for clause in clauses]


def test_clauses_of_a_text() -> None:
    clauses = read_clauses(TEXT, "en-us")
    assert phonemes_of(clauses) == PHONEMES
    assert [clause[1:] for clause in clauses] == [(",", False), (".", True), ("?", True)]


def test_the_last_single_letter_is_kept_and_leaks_nowhere() -> None:
    assert phonemes_of(read_clauses("Plan. B", "en-us")) == ["plˈæn", "bˈiː"]
    assert phonemes_of(read_clauses("Hi..", "en-us")) == phonemes_of(read_clauses("Hi..", "en-us"))
    assert phonemes_of(read_clauses("5", "en-us")) == ["fˈaɪv"]


def test_an_abandoned_reading_leaks_nowhere() -> None:
    engine = Espeak(espeak_library.installed_folder())
    engine.read("x", "en-us")
    next(engine._pieces(b"One. Two. Three."))
    assert phonemes_of(engine.read(TEXT, "en-us")) == PHONEMES


def test_an_unknown_voice_is_named_with_the_nearest_ones() -> None:
    with pytest.raises(UnknownName, match=r"unknown espeak-ng voice 'en-uss'\. Did you mean 'en-us'\? .*en-us, .*more"):
        read_clauses(TEXT, "en-uss")


@pytest.mark.parametrize(
    "voice", ["", "../../../../etc/passwd", "en-us+f3", "mb-en1", "xex", "kl", "a" * 5000, "en\0", "日本"]
)
def test_names_that_are_no_voice(voice: str) -> None:
    with pytest.raises(UnknownName):
        read_clauses(TEXT, voice)


def test_every_listed_voice_speaks() -> None:
    assert len(espeak.voices()) > 120
    silent = {voice for voice in espeak.voices() if not any(phonemes_of(read_clauses("1 2 3 a b c", voice)))}
    assert silent == set()


@pytest.mark.parametrize(
    "text",
    ["", " ", "\0", "\ud800", "\x01 \x01", "😀🎉", "❤️👍🏽", "?!", "…", "\n\n\n", "\ufffe\U0010ffff", "\u200b"],
)
def test_texts_without_speech(text: str) -> None:
    assert not any(phonemes_of(read_clauses(text, "en-us")))


@pytest.mark.parametrize("char", ["\0", "\x01", "\ud83d", "🤝", "\u28ff", "\ue000"])
def test_unreadable_characters_are_spaces(char: str) -> None:
    assert read_clauses(f"Hello{char}world.", "de") == read_clauses("Hello world.", "de")


@pytest.mark.parametrize(
    "text", ["word " * 40_000, "a" * 20_000, "9" * 5_000, "你好" * 5_000, "-" * 5_000, "\u0301" * 3_000]
)
def test_very_long_texts(text: str) -> None:
    assert len(read_clauses(text, "en-us")) >= len(text) // 900


def test_threads_do_not_disturb_each_other() -> None:
    texts = [("Good morning, everyone.", "en-us"), ("Guten Morgen, alle drei.", "de"), ("Bonjour à tous !", "fr")] * 40
    expected = {pair: read_clauses(*pair) for pair in texts[:3]}
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda pair: read_clauses(*pair), texts))
    assert results == [expected[pair] for pair in texts]


def test_another_user_of_the_library_in_this_process_is_not_disturbed() -> None:
    folder = espeak_library.installed_folder()
    path, data = espeak_library._files(folder)
    other = ctypes.CDLL(str(path))
    espeak_library._declare(other)
    espeak_library._initialize(other, data, data)

    def read_by_other() -> bytes:
        pointer = ctypes.c_void_p(ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value)
        spoken: bytes = other.espeak_TextToPhonemes(ctypes.byref(pointer), 1, 2)
        return spoken

    text = b"the apple"
    other.espeak_ng_SetVoiceByName(b"en-us")
    before = read_by_other()
    engine = Espeak(folder)
    assert phonemes_of(engine.read("der Apfel", "de")) == ["dɛɾ ˈapfəl"]
    assert read_by_other() == before == "ðɪ ˈæpəl".encode()
    other.espeak_ng_SetVoiceByName(b"fr")
    assert phonemes_of(engine.read(TEXT, "en-us")) == PHONEMES


def test_the_process_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    try:
        assert phonemes_of(Espeak(espeak_library.installed_folder()).read(TEXT, "en-us")) == PHONEMES
        assert locale.setlocale(locale.LC_CTYPE) == "C"
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    assert sys.platform == "win32" or list(tmp_path.iterdir()) == []


def test_nothing_is_loaded_by_import_and_nothing_is_printed() -> None:
    code = (
        "import signal, sys\n"
        "from mizuoto_runtime.text import espeak\n"
        "assert not {'torch', 'espeakng_loader', 'tempfile_'} & set(sys.modules)\n"
        "before = [signal.getsignal(number) for number in signal.valid_signals()]\n"
        "for voice in espeak.voices(): espeak.read_clauses('Hello 5.', voice)\n"
        "assert before == [signal.getsignal(number) for number in signal.valid_signals()]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_long_install_path_works(wheel: Path, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-rather-long-name"] * 6)
    deep.mkdir(parents=True)
    moved = Path(shutil.move(wheel, deep / "wheel"))
    assert len(str(moved)) > espeak_library.MAX_PATH_BYTES
    assert phonemes_of(Espeak(moved).read(TEXT, "en-us")) == PHONEMES


def test_a_path_with_other_characters_works(wheel: Path) -> None:
    moved = wheel.rename(wheel.with_name("音声 ü"))
    assert phonemes_of(Espeak(moved).read(TEXT, "en-us")) == PHONEMES


@pytest.mark.parametrize("name", ["phontab", "phonindex", "phondata", "intonations"])
def test_a_missing_part_is_named(wheel: Path, name: str) -> None:
    (wheel / "espeak-ng-data" / name).unlink()
    with pytest.raises(MissingDependency, match=f"lacks {name}; reinstall it with: pip install"):
        Espeak(wheel)


def test_a_missing_library_is_named(wheel: Path) -> None:
    for path in [*wheel.glob("*.so*"), *wheel.glob("*.dylib"), *wheel.glob("*.dll")]:
        path.unlink()
    with pytest.raises(MissingDependency, match=r"lacks libespeak-ng\.so or"):
        Espeak(wheel)


def test_another_version_of_the_data_is_used_as_it_is_and_said(wheel: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = wheel / "espeak-ng-data" / "phonindex"
    index.write_bytes(index.read_bytes() + b"\0\0")
    assert Espeak(wheel).read("Hello.", "en-us")[0].mark == "."
    assert "isn't version 0.2.4" in caplog.text


def test_a_damaged_phoneme_table_is_reported(wheel: Path) -> None:
    (wheel / "espeak-ng-data" / "phondata").write_bytes(b"\0" * 64)
    with pytest.raises(MissingDependency, match="can't read its phonemes"):
        Espeak(wheel)


def test_a_library_that_is_no_library_is_reported(wheel: Path) -> None:
    espeak_library._files(wheel)[0].write_bytes(b"text")
    with pytest.raises(MissingDependency, match="can't be loaded from a copy"):
        Espeak(wheel)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak_library, "PACKAGE", "no-such-package")
    with pytest.raises(MissingDependency, match=r"pip install no-such-package==0\.2\.4"):
        espeak_library.installed_folder()


@pytest.mark.parametrize(
    ("voice", "text"),
    [
        ("da", "---a"),
        ("vi", "\n-----a"),
        ("de", "🤝 🤞 🤟 🤠 🤡 🤢"),
        ("bn", "\u24dc"),
        ("ar", "\u28ff"),
        ("bg", "\u2138\u2139\u213a"),
    ],
)
def test_texts_that_crash_a_bare_library_do_not_crash_this(voice: str, text: str) -> None:
    code = f"from mizuoto_runtime.text.espeak import read_clauses; read_clauses({text!r}, {voice!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_random_characters_crash_no_voice() -> None:
    code = (
        "import random, unicodedata\n"
        "from mizuoto_runtime.text.espeak import read_clauses, voices\n"
        "chooser = random.Random(5)\n"
        "chars = [chr(code) for code in range(0x20, 0x3000) if unicodedata.category(chr(code)) != 'Cn']\n"
        "for voice in voices():\n"
        "    for length in (3, 30, 300):\n"
        "        read_clauses(''.join(chooser.choices(chars + [' '] * 2000, k=length)), voice)\n"
        "    read_clauses(' '.join(str(chooser.randrange(10**digits)) for digits in range(1, 30)), voice)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
