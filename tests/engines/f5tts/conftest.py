"""The golden checkpoints as installed models, and what upstream gave for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mizuoto_runtime.engines.f5tts.weights import Modules, load_modules
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio
from tests.golden.f5tts.cases import MODELS
from tests.golden.f5tts.checkpoint import FOLDER, sound, write_model, write_vocoder

GOLDEN: dict[str, Any] = json.loads((FOLDER / "golden.json").read_text(encoding="utf-8"))
MEL_TOLERANCE: float = GOLDEN["tolerances"]["mel"]
WAVE_TOLERANCE: float = GOLDEN["tolerances"]["wave"]


@cache
def arrays() -> dict[str, Tensor]:
    return load_file(FOLDER / "golden.safetensors")


def audio(**described: Any) -> Audio:
    """The sound of a recorded case."""
    return Audio(sound(**described), described.get("rate_hz", 24_000))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are no work for several, which only wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with every golden model, their vocoder beside them."""
    root = tmp_path_factory.mktemp("models")
    write_vocoder(root / "f5tts" / "vocos")
    for name in MODELS:
        write_model(root / "f5tts" / name, name)
    return root


@pytest.fixture(scope="session")
def modules(root: Path) -> dict[str, Modules]:
    return {name: load_modules(root / "f5tts" / name) for name in MODELS}


@pytest.fixture(scope="session")
def library(root: Path) -> ModelLibrary:
    return ModelLibrary([root])


@pytest.fixture
def session(library: ModelLibrary) -> Session:
    return Session(resolve(environment={}), library)
