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

from mizuoto_runtime.engines.voxcpm.weights import Modules, load_modules
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio
from tests.golden.voxcpm.cases import CONFIGS
from tests.golden.voxcpm.checkpoint import FOLDER, sound, write_checkpoint

GOLDEN: dict[str, Any] = json.loads((FOLDER / "golden.json").read_text(encoding="utf-8"))
LATENT_TOLERANCE: float = GOLDEN["tolerances"]["latents"]
WAVE_TOLERANCE: float = GOLDEN["tolerances"]["wave"]


@cache
def arrays() -> dict[str, Tensor]:
    return load_file(FOLDER / "golden.safetensors")


def audio(**described: Any) -> Audio:
    """The sound of a recorded case."""
    return Audio(sound(**described), described.get("rate_hz", 16_000))


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
    for name in CONFIGS:
        write_checkpoint(root / "voxcpm" / name, name)
    return root


@pytest.fixture(scope="session")
def modules(root: Path) -> dict[str, Modules]:
    return {name: load_modules(root / "voxcpm" / name) for name in CONFIGS}


@pytest.fixture(scope="session")
def library(root: Path) -> ModelLibrary:
    return ModelLibrary([root])


@pytest.fixture
def session(library: ModelLibrary) -> Session:
    return Session(resolve(environment={}), library)
