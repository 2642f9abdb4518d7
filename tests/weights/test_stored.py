"""Tensors of either kind of file: mapped, by name, and nothing else; what is hostile or damaged is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch._utils import _rebuild_tensor_v2

from mizuoto_runtime.errors import ModelFileError
from mizuoto_runtime.weights.pages import give_back_pages
from mizuoto_runtime.weights.stored import opened

LARGE = 1 << 20
WEIGHTS = {"one": torch.arange(LARGE).float(), "two": torch.ones(2, 3)}


def written(path: Path, content: Any, **how: Any) -> Path:
    save_file(content, path) if path.suffix == ".safetensors" else torch.save(content, path, **how)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.bin", "w.pt"])
def test_tensors_are_mapped(tmp_path: Path, name: str) -> None:
    with opened(written(tmp_path / name, WEIGHTS)) as stored:
        assert dict(stored.shapes) == {"one": (LARGE,), "two": (2, 3)}
        tensors = {name: stored.get(name) for name in stored.shapes}
    assert all(torch.equal(tensors[name], WEIGHTS[name]) for name in WEIGHTS)
    assert give_back_pages([tensors["one"]]) > 0, "it isn't mapped"


def test_the_old_format_is_read_too(tmp_path: Path) -> None:
    with opened(written(tmp_path / "w.pt", WEIGHTS, _use_new_zipfile_serialization=False)) as stored:
        assert torch.equal(stored.get("one"), WEIGHTS["one"])


def test_the_first_wrapping_that_is_there_is_opened(tmp_path: Path) -> None:
    other = {"three": torch.zeros(1)}
    path = written(tmp_path / "w.pt", {"later": other, "first": WEIGHTS, "optimizer": {"step": 3}})
    for wrappings, found in ((("first", "later"), WEIGHTS), (("none", "later"), other)):
        with opened(path, *wrappings) as stored:
            assert stored.shapes.keys() == found.keys()
    with pytest.raises(ModelFileError, match="'first', 'later', 'optimizer' are no plain tensors"), opened(path):
        pass


def test_renamed_tensors_are_the_same(tmp_path: Path) -> None:
    with opened(written(tmp_path / "w.bin", WEIGHTS)) as file:
        stored = file.renamed({"one": "uno", "two": None}.get)
        assert dict(stored.shapes) == {"uno": (LARGE,)}
        assert torch.equal(stored.floating("uno"), WEIGHTS["one"])
        with pytest.raises(ModelFileError, match="'one' and 'two' are the same weight, 'x'"):
            file.renamed(lambda name: "x")


class Misused:
    """Pickled, a call of something harmless that raises what is no error of pickles."""

    def __init__(self, *given: object) -> None:
        self.given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_tensor_v2, self.given


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


def views(tensor: Tensor) -> dict[str, Tensor]:
    return {f"w{index}": tensor[index:] for index in range(4)}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (Hostile(), r"not a file of weights \(it holds other things than tensors, which aren't run\); download"),
        ({"a": Hostile()}, r"not a file of weights \(it holds other things than tensors, which aren't run\); download"),
        (Misused(1), "not a file of weights"),
        ({"a": Misused(None, 1, 2, 3, 4, 5)}, "not a file of weights"),
        ([torch.ones(1)], "holds no weights by name"),
        ({}, "holds no weights by name"),
        ({3: torch.ones(1), "3": torch.ones(1)}, "holds no weights by name"),
        ({"a": 1}, "'a' are no plain tensors"),
        ({"a": torch.zeros(1).expand(1 << 40)}, "'a' are no plain tensors"),
        ({"a": torch.zeros(8, device="meta")}, "'a' are no plain tensors"),
        ({"a": torch.zeros(8).to_sparse()}, "'a' are no plain tensors"),
        (views(torch.ones(64)), "weights lie in one place"),
    ],
)
def test_what_holds_more_than_plain_tensors_is_refused(
    tmp_path: Path, content: object, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "w.pt", content)
    with pytest.raises(ModelFileError, match=rf"w\.pt: .*{problem}") as raised, opened(path):
        pass
    assert "must not run" not in capsys.readouterr().out
    said = str(raised.value)
    assert "weights_only" not in said and "\n" not in said, "torch advises to run what the file holds"


def test_an_error_without_words_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    path.write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"not a file of weights \(EOFError\)"), opened(path):
        pass


@pytest.mark.parametrize("kept", [0, 9, 1 << 20])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str, kept: int) -> None:
    path = written(tmp_path / name, WEIGHTS)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match="download it again"), opened(path):
        pass
