"""Installed models are compared with what was published, and removed without touching anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mizuoto_runtime.cli import main
from mizuoto_runtime.engines.piper.spec import SPEC as PIPER
from mizuoto_runtime.engines.qwen3tts.spec import SPEC as QWEN
from mizuoto_runtime.engines.registry import engine_spec
from mizuoto_runtime.engines.spec import Variant
from mizuoto_runtime.errors import Cancelled, InputError, ModelNotFound
from mizuoto_runtime.fetch import LicenceNotAccepted, fetch
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.upkeep import remove, verify
from tests.test_fetch import CONFIG, MODEL, NAME, published


@pytest.fixture
def library(tmp_path: Path) -> ModelLibrary:
    return ModelLibrary([tmp_path / "models", tmp_path / "more"])


def installed(root: Path, name: str = NAME, model: bytes = MODEL, config: bytes = CONFIG) -> Path:
    path = root / "piper" / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model)
    path.with_name(path.name + ".json").write_bytes(config)
    return path


def states(library: ModelLibrary) -> list[str]:
    return [verdict.state for verdict in verify(published(), NAME, library)]


@pytest.mark.parametrize(
    ("model", "config", "expected"),
    [
        (MODEL, CONFIG, ["right", "right"]),
        (MODEL[:-1], CONFIG, ["wrong size", "right"]),
        (MODEL, CONFIG[:-1] + b"?", ["right", "wrong content"]),
    ],
)
def test_each_file_is_compared(library: ModelLibrary, model: bytes, config: bytes, expected: list[str]) -> None:
    installed(library.roots[0], model=model, config=config)
    assert states(library) == expected


def test_a_missing_companion_is_told(library: ModelLibrary) -> None:
    path = installed(library.roots[1])
    path.with_name(path.name + ".json").unlink()
    assert states(library) == ["right", "missing"]


def test_a_model_of_ones_own_has_nothing_to_compare(library: ModelLibrary) -> None:
    installed(library.roots[0], "mine")
    with pytest.raises(InputError, match="nothing to compare"):
        verify(published(), "mine", library)
    with pytest.raises(ModelNotFound):
        verify(published(), NAME, library)


def test_verifying_can_be_cancelled(library: ModelLibrary) -> None:
    installed(library.roots[0])

    def check() -> None:
        raise Cancelled("no more")

    with pytest.raises(Cancelled):
        verify(published(), NAME, library, check=check)


def test_removing_takes_the_model_and_nothing_else(library: ModelLibrary) -> None:
    path, other = installed(library.roots[0], f"sub/{NAME}"), installed(library.roots[0], "other")
    path.with_name(f"{path.name}.part").write_bytes(b"half")
    cached = path.parent / ".mizuoto" / f"{path.name}.0123.safetensors"
    cached.parent.mkdir()
    cached.write_bytes(b"converted")
    assert remove(PIPER, f"sub/{NAME}", library) == len(MODEL) + len(CONFIG) + 4 + 9
    assert not path.parent.exists() and other.exists()
    assert list(library.installed(PIPER)) == ["other"]


def test_a_folder_model_goes_whole(library: ModelLibrary) -> None:
    folder = library.folder(QWEN) / "mine"
    (folder / "deep").mkdir(parents=True)
    for name in (QWEN.layout.marker, "deep/weights"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    assert remove(QWEN, "mine", library) == 10
    assert not folder.exists() and library.folder(QWEN).exists()


def test_a_link_goes_and_what_it_leads_to_stays(library: ModelLibrary, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / QWEN.layout.marker).parent.mkdir(parents=True)
    (elsewhere / QWEN.layout.marker).write_bytes(b"12345")
    library.folder(QWEN).mkdir(parents=True)
    link = library.folder(QWEN) / "linked"
    link.symlink_to(elsewhere, target_is_directory=True)
    assert remove(QWEN, "linked", library) == 0
    assert not link.is_symlink() and (elsewhere / QWEN.layout.marker).exists()


def test_what_lies_in_another_packs_folder_is_left_to_the_user(library: ModelLibrary) -> None:
    path = installed(library.roots[1])
    with pytest.raises(InputError, match="remove it by hand"):
        remove(PIPER, NAME, library)
    assert path.exists()


@pytest.mark.parametrize("name", ["..", "../more", "", "/etc", "sub/../other"])
def test_only_listed_names_can_be_removed(library: ModelLibrary, name: str) -> None:
    installed(library.roots[0], "other")
    with pytest.raises(InputError):
        remove(PIPER, name, library)


def test_a_built_in_model_has_no_files(library: ModelLibrary) -> None:
    with pytest.raises(InputError, match="built in"):
        remove(engine_spec("dummy"), "tones", library)


@pytest.mark.parametrize(
    ("licence", "restricts"),
    [
        ("CC-BY-NC-4.0", True), ("Blizzard Challenge 2013, research only", True), ("Fish Audio Research", True),
        ("bilibili", True), ("Apache-2.0", False), ("MIT", False), ("CC-BY-4.0", False), ("public domain", False),
    ],
)  # fmt: skip
def test_a_licence_that_forbids_something_must_be_accepted(
    library: ModelLibrary, licence: str, restricts: bool
) -> None:
    variant = Variant(id="v", label="", licence=licence)
    assert variant.restricts is restricts


def test_nothing_is_asked_for_before_the_licence_is_accepted(library: ModelLibrary) -> None:
    name = next(variant.id for variant in PIPER.variants if variant.restricts)
    with pytest.raises(LicenceNotAccepted, match=r"research only.*--accept-licence"):
        fetch(PIPER, name, library, endpoint="http://127.0.0.1:9")
    assert not library.roots[0].exists()


def test_the_command_line(library: ModelLibrary, capsys: pytest.CaptureFixture[str]) -> None:
    voice = "en_US-joe-medium"
    path = installed(library.roots[0], voice)
    root = f"paths.models={library.roots[0]}"
    assert main(["models", "verify", "piper", voice, "--setting", root]) == 1
    assert f"{path}\twrong size" in capsys.readouterr().out
    assert main(["models", "remove", "piper", voice, "--setting", root]) == 0
    assert "bytes given back" in capsys.readouterr().out
    assert not path.exists()
    assert main(["models", "verify", "piper", voice, "--setting", root]) == 1
    assert "isn't installed" in capsys.readouterr().err
