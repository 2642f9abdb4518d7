"""Small weights lie at even addresses; large ones stay where they are mapped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mizuoto_runtime.weights import alignment
from mizuoto_runtime.weights.alignment import ALIGNMENT_BYTES, align_small_weights


def at_odd_address(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    size = torch.Size(shape).numel()
    room = torch.arange(size + 1, dtype=torch.float32).to(dtype)
    return room[1:].view(shape)


def layer(weight: Tensor, bias: Tensor) -> nn.Linear:
    made = nn.Linear(1, 1, device="meta")
    made.weight, made.bias = nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)
    return made


def is_even(tensor: Tensor) -> bool:
    return tensor.data_ptr() % ALIGNMENT_BYTES == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_ones_are_copied_and_keep_their_values(dtype: torch.dtype) -> None:
    made = layer(at_odd_address(4, 6, dtype=dtype), at_odd_address(4, dtype=dtype))
    made.register_buffer("table", at_odd_address(3, 3, dtype=dtype))
    tied = nn.ModuleList([made, layer(made.weight, made.bias)])
    before = {name: tensor.clone() for name, tensor in tied.state_dict().items()}
    assert align_small_weights(tied) == (24 + 4 + 9) * dtype.itemsize
    assert all(map(is_even, tied.state_dict().values()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in tied.state_dict().items())
    assert tied[0].weight.data_ptr() == tied[1].weight.data_ptr(), "what is shared stays so"
    assert align_small_weights(tied) == 0


def test_large_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "SMALL_BYTES", 4 * 24)
    made = layer(at_odd_address(4, 6), at_odd_address(4))
    address = made.weight.data_ptr()
    assert align_small_weights(made) == 16 and made.weight.data_ptr() == address


def test_a_single_row_gives_the_same_bits_mapped_and_copied(tmp_path: Path) -> None:
    """With a header of any length, as official files have."""
    rng = torch.Generator().manual_seed(1)
    weight, x = torch.randn(48, 96, generator=rng), torch.randn(1, 96, generator=rng)
    expected = torch.nn.functional.linear(x, weight)
    for name in ("a", "ab", "abc", "abcdefghi"):
        path = tmp_path / f"{name}.safetensors"
        save_file({"b": torch.zeros(len(name)), name: weight}, path)
        made = layer(load_file(path)[name], torch.zeros(48))
        align_small_weights(made)
        assert torch.equal(torch.nn.functional.linear(x, made.weight), expected)


def test_weights_of_other_kinds_are_left_alone() -> None:
    module = nn.Module()
    module.register_buffer("packed", at_odd_address(4, 4).to_mkldnn())
    module.register_buffer("sparse", at_odd_address(4, 4).to_sparse())
    assert align_small_weights(module) == 0
