"""Installed models: found in every root, under stable names, never outside."""

import os
import shlex
from pathlib import Path

import pytest

from mizuoto_runtime.engines.registry import engine_spec
from mizuoto_runtime.engines.spec import EngineSpec, Layout, ModelFile, Variant
from mizuoto_runtime.errors import InputError, ModelNotFound, UnknownName
from mizuoto_runtime.library import ModelLibrary, roots_from
from mizuoto_runtime.settings import resolve

VARIANT = Variant(id="published", label="P", licence="", files=(ModelFile(path="p.onnx", url="", size_bytes=1),))


def spec(layout: Layout) -> EngineSpec:
    return EngineSpec(
        id="e",
        label="E",
        description="",
        licence="",
        layout=layout,
        components=(),
        phases=(),
        phased=True,
        variants=(VARIANT,),
    )


FILES = spec(Layout(kind="file", suffix=".onnx"))
FOLDERS = spec(Layout(kind="folder", marker="config.json"))


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def test_models_of_every_root_are_found_and_the_first_root_wins(tmp_path: Path) -> None:
    first = put(tmp_path / "a/e/voice.onnx")
    put(tmp_path / "b/e/voice.onnx")
    deeper = put(tmp_path / "b/e/de/other.onnx")
    put(tmp_path / "b/e/.hidden.onnx")
    put(tmp_path / "b/e/voice.onnx.part")
    library = ModelLibrary([tmp_path / "a", tmp_path / "b", tmp_path / "absent"])
    assert library.installed(FILES) == {"de/other": deeper, "voice": first}
    assert library.known(FILES) == ("de/other", "published", "voice")


def test_a_folder_with_the_marker_is_one_model(tmp_path: Path) -> None:
    put(tmp_path / "e/large/config.json")
    put(tmp_path / "e/large/tokenizer/config.json")
    assert ModelLibrary([tmp_path]).installed(FOLDERS) == {"large": tmp_path / "e/large"}


def test_a_model_that_is_only_published_names_the_folder_and_the_command(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        ModelLibrary([tmp_path]).find(FILES, "published")
    assert str(tmp_path / "e") in str(caught.value)
    command = str(caught.value).rpartition(": ")[2]
    assert shlex.split(command)[1:] == [
        *["-m", "mizuoto_runtime", "models", "fetch", "e", "published", "--setting"],
        f"paths.models={tmp_path}",
    ], "the command puts the model where the message says"


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "", "other", "de\\..\\x"])
def test_only_listed_names_are_models(tmp_path: Path, name: str) -> None:
    put(tmp_path / "secret.onnx")
    with pytest.raises(UnknownName, match="Known: published"):
        ModelLibrary([tmp_path / "models"]).find(FILES, name)


def test_a_replaced_file_is_another_model(tmp_path: Path) -> None:
    path = put(tmp_path / "e/voice.onnx")
    files = ModelLibrary([tmp_path]).find(FILES, "voice")
    before = files.identity()
    path.write_bytes(b"xy")
    assert files.identity() != before


def test_a_replaced_companion_is_another_model_too(tmp_path: Path) -> None:
    layout = Layout(kind="file", suffix=".onnx", companions=(".json",))
    companion = put(tmp_path / "e/voice.onnx").with_name("voice.onnx.json")
    files = ModelLibrary([tmp_path]).find(spec(layout), "voice")
    seen = [files.identity()]
    for content in (b"{}", b"{ }"):
        companion.write_bytes(content)
        seen.append(files.identity())
    assert len(set(seen)) == 3


def test_any_file_of_a_folder_counts_but_hidden_ones(tmp_path: Path) -> None:
    put(tmp_path / "e/large/config.json")
    deep = put(tmp_path / "e/large/codec/weights.bin")
    files = ModelLibrary([tmp_path]).find(FOLDERS, "large")
    before = files.identity()
    put(tmp_path / "e/large/.cache/x")
    assert files.identity() == before
    deep.write_bytes(b"other")
    assert files.identity() != before


@pytest.mark.parametrize("shared", ["e/vocoder/weights.bin", "e/family/vocoder/weights.bin", "e/vocab.txt"])
def test_what_models_share_counts_as_well(tmp_path: Path, shared: str) -> None:
    put(tmp_path / "e/family/large/config.json")
    put(tmp_path / "e/other/weights.bin")
    layout = Layout(kind="folder", marker="config.json", around=("vocab.txt", "vocoder"))
    files = ModelLibrary([tmp_path]).find(spec(layout), "family/large")
    seen = [files.identity()]
    path = put(tmp_path / shared)
    for content in (b"1", b"12"):
        path.write_bytes(content)
        seen.append(files.identity())
    assert len(set(seen)) == 3
    put(tmp_path / "e/other/more.bin")
    assert files.identity() == seen[-1]


def test_paths_are_for_those_who_may_name_them(tmp_path: Path) -> None:
    path = put(tmp_path / "x.onnx")
    assert ModelLibrary([]).at(FILES, path).path == path
    with pytest.raises(ModelNotFound, match="no E model at"):
        ModelLibrary([]).at(FILES, tmp_path / "absent.onnx")
    with pytest.raises(InputError, match="its models are tones"):
        ModelLibrary([]).at(engine_spec("dummy"), path)


def test_roots_come_from_the_setting(tmp_path: Path) -> None:
    settings = resolve({"paths.models": f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}"}, {})
    assert roots_from(settings) == (tmp_path / "a", tmp_path / "b")
    assert roots_from(resolve(environment={})) == (Path.home() / ".mizuoto" / "models",)
