"""E2's norm, in every dtype that a model computes in."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.engines.f5tts.layers import RmsNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 3000.0])
def test_the_norm_takes_any_length(dtype: torch.dtype, scale: float) -> None:
    """In float16 the length of a row may be infinite, and the least one 0."""
    rng = torch.Generator().manual_seed(1)
    norm = RmsNorm(1024).requires_grad_(False)
    norm.gain.copy_(torch.rand(1024, generator=rng) + 0.5)
    norm.to(dtype)
    x = (torch.randn(2, 3, 1024, generator=rng) * scale).to(dtype)
    expected = torch.nn.functional.normalize(x.double(), dim=-1) * 32 * norm.gain.double()
    normed = norm(x)
    assert normed.dtype == dtype
    assert (normed - expected).abs().max() <= 4 * torch.finfo(dtype).eps * expected.abs().max()
