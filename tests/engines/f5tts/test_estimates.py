"""Working memory is what was estimated or less, and not much less once inputs are long; tiles change nothing much."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.engines.f5tts.config import Architecture
from mizuoto_runtime.engines.f5tts.dit import Dit
from mizuoto_runtime.engines.f5tts.estimates import (
    BASE_BYTES,
    tiled_vocoder_bytes,
    transformer_bytes,
    vocoder_bytes,
)
from mizuoto_runtime.engines.f5tts.network import Network
from mizuoto_runtime.engines.f5tts.sampler import Sampling, Solver, batch_of, draw_noise
from mizuoto_runtime.engines.f5tts.unett import UnetT
from mizuoto_runtime.engines.f5tts.vocos import TILE_FRAMES, TILING_ERROR, Vocos, VocosConfig
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.seeds import generator
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")
DIT = Architecture(
    backbone="DiT", dim=256, depth=2, heads=4, dim_head=64, mlp=512, mel_dim=100, text_dim=128, conv_layers=2,
    text_mask_padding=True,
)  # fmt: skip
UNETT = replace(DIT, backbone="UNetT", depth=4, mlp=1024, text_dim=100, conv_layers=0, pe_attn_head=1)
REAL_DIT = replace(DIT, dim=1024, depth=22, heads=16, mlp=2048, text_dim=512, conv_layers=4)
REAL_UNETT = replace(UNETT, dim=1024, depth=24, heads=16, mlp=4096)
VOCOS = VocosConfig(
    mel=100, width=512, inner=1536, layers=8, scaled=True, window=1024, hop=256, padding="center", rate_hz=24_000
)


def random(module: torch.nn.Module, dtype: torch.dtype = torch.float32) -> None:
    rng = generator(0)
    weights = {
        name: torch.empty(shell.shape).normal_(0, 0.02, generator=rng).to(dtype)
        for name, shell in module.state_dict().items()
    }
    if "window" in weights:
        weights["window"] = torch.hann_window(len(weights["window"]))
    module.load_state_dict(weights, assign=True)
    module.requires_grad_(False).eval()


def network(architecture: Architecture, dtype: torch.dtype = torch.float32) -> Network:
    with torch.device("meta"):
        made = (Dit if architecture.backbone == "DiT" else UnetT)(architecture, 50)
    random(made, dtype)
    return made


def vocos(**changes: object) -> Vocos:
    with torch.device("meta"):
        made = Vocos(replace(VOCOS, **changes))  # type: ignore[arg-type]
    random(made)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", [DIT, UNETT], ids=["DiT", "UNetT"])
@pytest.mark.parametrize(("frames", "strength"), [(60, 2.0), (900, 2.0), (900, 0.0)])
def test_sampling(architecture: Architecture, frames: int, strength: float, dtype: torch.dtype) -> None:
    how = Sampling(nfe_step=2, cfg_strength=strength)
    made = network(architecture, dtype)
    batch = batch_of([torch.zeros(frames // 2, 100)], [[1] * 30], [frames])
    noise = draw_noise(batch, dtype, [generator(0)])
    with LiveBytes() as live:
        Solver(made, batch, how, noise).run("cpu")
    estimated = transformer_bytes(architecture, 1, frames, how, dtype, CPU)
    print(f"measured {live.peak_bytes:,}, estimated {estimated:,} bytes")
    assert live.peak_bytes <= estimated <= 1.6 * live.peak_bytes + 1.1 * BASE_BYTES


@pytest.mark.parametrize("frames", [2, 300, 900])
def test_decoding(frames: int) -> None:
    made = vocos(layers=2)
    mel = torch.zeros(1, frames, 100)
    with LiveBytes() as live:
        made(mel)
    estimated = vocoder_bytes(made.config, frames)
    print(f"measured {live.peak_bytes:,}, estimated {estimated:,} bytes")
    assert live.peak_bytes <= estimated <= 1.6 * live.peak_bytes + 1.1 * BASE_BYTES
    with LiveBytes() as live:
        made.tiled(mel)
    assert live.peak_bytes <= tiled_vocoder_bytes(made.config, frames)


@pytest.mark.parametrize("padding", ["center", "same"])
@pytest.mark.parametrize("frames", [2, TILE_FRAMES, TILE_FRAMES + 1, 2 * TILE_FRAMES + 3])
def test_tiles_give_the_same_samples(frames: int, padding: str) -> None:
    made = vocos(width=64, inner=96, padding=padding)
    mel = torch.randn(1, frames, 100, generator=generator(1))
    whole: Tensor = made(mel)
    assert whole.shape == (1, made.length(frames)) and whole.std() > 1e-4
    loud = whole.abs().max()
    assert (made.tiled(mel) - whole).abs().max() <= TILING_ERROR * loud


@pytest.mark.parametrize(
    ("architecture", "size_mb", "least_mb"), [(REAL_DIT, 1350, 90), (REAL_UNETT, 1330, 170)], ids=["DiT", "UNetT"]
)
def test_little_of_the_real_sizes_has_to_be_on_the_device(
    architecture: Architecture, size_mb: int, least_mb: int
) -> None:
    with torch.device("meta"):
        made = (Dit if architecture.backbone == "DiT" else UnetT)(architecture, 2545)
    handle = ModelHandle("transformer", made, "oneshot")
    handle.mark(made.text.tokens, "gather")
    print(f"{handle.size_bytes:,} bytes, minimum {handle.minimum_bytes(1):,}")
    assert handle.size_bytes == pytest.approx(size_mb * 1e6, rel=0.02)
    assert handle.minimum_bytes(1) < least_mb * 1e6
