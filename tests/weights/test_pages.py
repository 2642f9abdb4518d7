"""Pages of a mapped file are given back, others are left alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mizuoto_runtime.weights.pages import MAPS, converted, give_back_pages

COUNT = 1 << 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which memory is a file's")


def resident_bytes(tensor: torch.Tensor) -> int:
    """Of the mapping in which the tensor lies."""
    lines, inside = MAPS.with_name("smaps").read_text().splitlines(), False
    for line in lines:
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= tensor.data_ptr() < end
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no mapping holds the tensor")


@LINUX
def test_a_mapped_tensor_takes_no_ram_until_it_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"first": torch.arange(COUNT, dtype=torch.float32), "second": torch.ones(COUNT)}, path)
    with safe_open(path, "pt") as file:
        first, second = file.get_tensor("first"), file.get_tensor("second")
    total = first.sum() + second.sum()
    before = resident_bytes(first)
    given = give_back_pages([first])
    assert 0 <= first.nbytes - given < 2 * 65_536
    assert before - resident_bytes(first) == given
    assert first.sum() + second.sum() == total


def test_memory_that_is_no_files_is_left_alone() -> None:
    tensor = torch.arange(COUNT, dtype=torch.float32)
    assert give_back_pages([tensor, tensor[::2], torch.empty(0)]) == 0
    assert torch.equal(tensor, torch.arange(COUNT, dtype=torch.float32))


@LINUX
def test_what_is_converted_takes_no_ram_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"only": torch.arange(COUNT, dtype=torch.float32)}, path)
    with safe_open(path, "pt") as file:
        stored = file.get_tensor("only")
    assert converted(stored, torch.float32) is stored
    before = resident_bytes(stored)
    assert torch.equal(converted(stored, torch.float64), torch.arange(COUNT, dtype=torch.float64))
    assert resident_bytes(stored) < before + 2 * 65_536
