"""The published models: complete, consistent, and listed by the library last when they are whole."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mizuoto_runtime import fetch as fetching
from mizuoto_runtime.engines.qwen3tts.catalog import VARIANTS
from mizuoto_runtime.engines.qwen3tts.spec import SPEC
from mizuoto_runtime.engines.spec import ModelFile, Variant
from mizuoto_runtime.errors import ModelNotFound
from mizuoto_runtime.library import ModelLibrary
from tests.golden.qwen3tts.checkpoint import write_checkpoint

CODEC = "speech_tokenizer"
WRITTEN = {"config.json", "generation_config.json", "merges.txt", "model.safetensors", "preprocessor_config.json",
           "tokenizer_config.json", "vocab.json", f"{CODEC}/config.json", f"{CODEC}/model.safetensors",
           f"{CODEC}/preprocessor_config.json"}  # fmt: skip


def test_every_model_has_all_files_with_size_and_digest() -> None:
    assert len({variant.id for variant in VARIANTS}) == len(VARIANTS) == 5
    for variant in VARIANTS:
        files = {file.path: file for file in variant.files}
        assert files.keys() >= WRITTEN and len(files) == len(variant.files)
        for file in variant.files:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size_bytes > 0
            assert re.fullmatch(f"Qwen/{variant.id}/resolve/[0-9a-f]{{40}}/{file.path}", file.url)
        parameters = 0.6e9 if "0.6B" in variant.id else 1.7e9
        assert 2 * parameters < files["model.safetensors"].size_bytes < 3.4 * parameters
        assert files[f"{CODEC}/model.safetensors"].size_bytes == 682_293_092
    weights = {file.sha256 for variant in VARIANTS for file in variant.files if file.path == "model.safetensors"}
    assert len(weights) == 5


def published(folder: Path, variant: Variant) -> Variant:
    """The variant with the tiny files in `folder` instead of the large ones."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    contents = {path: (folder / path).read_bytes() for path in paths}
    return replace(
        variant,
        files=tuple(
            ModelFile(path=path, url=f"r/{path}", size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            for path, data in contents.items()
        ),
    )


def test_a_model_is_listed_once_its_last_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_checkpoint(tmp_path / "source", "custom-small")
    spec = replace(SPEC, variants=(published(source, VARIANTS[3]),))
    library = ModelLibrary([tmp_path / "models"])
    listed = []

    def receive(self: object, file: ModelFile, url: str, part: Path) -> None:
        listed.append(bool(library.installed(spec)))
        part.write_bytes((source / file.path).read_bytes())

    monkeypatch.setattr(fetching._Receiver, "_receive", receive)
    folder = fetching.fetch(spec, VARIANTS[3].id, library, endpoint="http://127.0.0.1:9")
    assert listed == [False] * len(WRITTEN)
    assert library.installed(spec) == {VARIANTS[3].id: folder}
    assert (folder / "config.json").read_bytes() == (source / "config.json").read_bytes()


def test_a_missing_model_says_where_it_belongs_and_how_to_fetch_it(tmp_path: Path) -> None:
    name = VARIANTS[0].id
    with pytest.raises(ModelNotFound) as caught:
        ModelLibrary([tmp_path]).find(SPEC, name)
    assert f"Qwen/{name}" in str(caught.value) and str(tmp_path / "qwen3tts" / name) in str(caught.value)
    assert f"models fetch qwen3tts {name}" in str(caught.value)
