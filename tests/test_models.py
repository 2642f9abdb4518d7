"""Loaded models that go leave no RAM behind."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.engines.registry import engine_spec
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.loader import LoadedModel
from mizuoto_runtime.models import Models

STATM = Path("/proc/self/statm")
TRIMS = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")
WEIGHT_BYTES = 4 << 20
WEIGHTS = 48


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * 4096


@pytest.mark.skipif(not TRIMS, reason="only glibc can give back what it keeps")
def test_what_a_model_held_goes_back_to_the_system() -> None:
    """Blocks of the heap, as after another model went: the C library keeps what lies below one that is in use."""
    freed_before = torch.ones(4 * WEIGHT_BYTES, dtype=torch.uint8)
    del freed_before
    above: list[torch.Tensor] = []

    def load(files: ModelFiles) -> LoadedModel:
        weights = [torch.ones(WEIGHT_BYTES, dtype=torch.uint8) for _ in range(WEIGHTS)]
        above.append(torch.ones(1 << 10, dtype=torch.uint8))
        return LoadedModel(files.ref, weights, [])

    models = Models(load, lambda: 1)
    files = ModelLibrary([]).find(engine_spec("dummy"), "tones")
    models.open(files)
    held = resident_bytes()
    assert models.drop(files.ref)
    assert held - resident_bytes() > 0.9 * WEIGHTS * WEIGHT_BYTES
