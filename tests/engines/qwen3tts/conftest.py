"""The golden checkpoints as installed models, and what upstream gave for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve
from tests.golden.qwen3tts.checkpoint import FOLDER, models, write_checkpoint

GOLDEN: dict[str, Any] = json.loads((FOLDER / "golden.json").read_text(encoding="utf-8"))
TOLERANCE: float = GOLDEN["tolerance"]


@dataclass(frozen=True)
class Recorded:
    """One row of a recorded case. given: its inputs; options: what upstream was called with."""

    model: str
    method: str
    given: dict[str, Any]
    options: dict[str, Any]
    seed: int
    arrays: dict[str, Tensor]
    ends: str

    @property
    def codes(self) -> Tensor:
        return self.arrays["codes"].long()

    @property
    def non_streaming(self) -> bool:
        default: bool = self.method != "generate_voice_clone"
        return bool(self.given.get("non_streaming_mode", default))


@cache
def arrays() -> dict[str, Tensor]:
    return load_file(FOLDER / "golden.safetensors")


def recorded(number: int) -> list[Recorded]:
    """The rows of the case of that number."""
    case = GOLDEN["cases"][number]
    rows = len(case["frames"])
    return [
        Recorded(
            model=case["model"],
            method=case["method"],
            given={name: value[row] if isinstance(value, list) else value for name, value in case["inputs"].items()},
            options=case["options"],
            seed=case.get("seed", 0),
            arrays={
                key.removeprefix(f"{number}.{row}."): value
                for key, value in arrays().items()
                if key.startswith(f"{number}.{row}.")
            },
            ends=case["ends"][row],
        )
        for row in range(rows)
    ]


CASES = range(len(GOLDEN["cases"]))
SINGLE = [number for number in CASES if len(GOLDEN["cases"][number]["frames"]) == 1]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are no work for several, which only wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with every golden model."""
    root = tmp_path_factory.mktemp("models")
    for name in models()["models"]:
        write_checkpoint(root / "qwen3tts" / name, name)
    return root


@pytest.fixture(scope="session")
def library(root: Path) -> ModelLibrary:
    return ModelLibrary([root])


@pytest.fixture
def session(library: ModelLibrary) -> Session:
    return Session(resolve(environment={}), library)
