"""The golden models, installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve
from tests.engines.omnivoice.models import write_models


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
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def library(root: Path) -> ModelLibrary:
    return ModelLibrary([root])


@pytest.fixture
def session(library: ModelLibrary) -> Session:
    return Session(resolve(environment={}), library)
