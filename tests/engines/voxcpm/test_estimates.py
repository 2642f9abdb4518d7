"""Working memory of the language models is what was estimated or less, and not much less once prompts are long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.engines.voxcpm.config import VoxCpmConfig, read_config
from mizuoto_runtime.engines.voxcpm.estimates import BASE_BYTES, model_bytes
from mizuoto_runtime.engines.voxcpm.generate import Sampling, Writer
from mizuoto_runtime.engines.voxcpm.network import VoxCpm
from mizuoto_runtime.engines.voxcpm.prompt import Prompt
from mizuoto_runtime.lm.cache import CacheKind
from mizuoto_runtime.lm.decoder import DecoderConfig
from mizuoto_runtime.seeds import generator
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")
LM = DecoderConfig(
    width=256,
    inner=768,
    layers=3,
    heads=8,
    kv_heads=2,
    head_dim=64,
    norm_eps=1e-5,
    rope_theta=1e4,
    qk_norm=False,
)


@pytest.fixture
def config(root: Path) -> VoxCpmConfig:
    local = replace(LM, layers=2, causal=False)
    small = read_config(root / "voxcpm" / "v2")
    return replace(small, lm=LM, residual=replace(LM, layers=2), encoder=local, dit=local)


def with_random_weights(config: VoxCpmConfig, dtype: torch.dtype) -> VoxCpm:
    rng = generator(0)
    with torch.device("meta"):
        model = VoxCpm(config)
    weights = {
        name: torch.empty(shell.shape).normal_(0, 0.02, generator=rng).to(dtype)
        for name, shell in model.state_dict().items()
    }
    model.load_state_dict(weights, assign=True)
    return model.requires_grad_(False).eval()


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("text", "reference", "patches"), [(5, 0, 30), (1500, 0, 2), (10, 1000, 2)])
def test_writing(
    config: VoxCpmConfig, dtype: torch.dtype, kind: CacheKind, text: int, reference: int, patches: int
) -> None:
    model = with_random_weights(config, dtype)
    sound = torch.zeros(reference, config.patch, config.latent) if reference else None
    prompt = Prompt((1,) * text, text, sound)
    how = Sampling(inference_timesteps=3, min_len=patches)
    with LiveBytes() as live:
        writer = Writer(model, prompt, how, patches, generator(0), CPU, kind)
        while not writer.finished:
            writer.patch()
    estimated = model_bytes(config, prompt.positions, patches, kind, dtype, CPU)
    print(f"measured {live.peak_bytes:,}, estimated {estimated:,} bytes")
    assert live.peak_bytes <= estimated <= 2 * live.peak_bytes + 1.1 * BASE_BYTES


def test_where_attention_holds_all_scores_they_count(config: VoxCpmConfig) -> None:
    fused, held = (
        model_bytes(config, 1000, 10, "dynamic", torch.float32, torch.device(name)) for name in ("cuda", "mps")
    )
    assert held - fused == 2 * 4 * LM.heads * 1000**2
