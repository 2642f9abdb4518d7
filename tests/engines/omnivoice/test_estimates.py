"""Working memory is what was estimated or less, and not much less once texts are long."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mizuoto_runtime.engines.omnivoice.config import OmniVoiceConfig
from mizuoto_runtime.engines.omnivoice.estimates import BASE_BYTES, unmasking_bytes
from mizuoto_runtime.engines.omnivoice.network import Network
from mizuoto_runtime.engines.omnivoice.unmask import Prompt, Unmasker, Unmasking
from mizuoto_runtime.lm.decoder import DecoderConfig
from mizuoto_runtime.seeds import generator
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")
DECODER = DecoderConfig(
    width=256, inner=768, layers=2, heads=4, kv_heads=2, head_dim=128, norm_eps=1e-6, rope_theta=1e6
)
CONFIG = OmniVoiceConfig(decoder=DECODER, text_vocab=50, codebooks=8, codes=1025, mask=1024, most_positions=40_960)
REAL = replace(
    CONFIG,
    decoder=replace(DECODER, width=1024, inner=3072, layers=28, heads=16, kv_heads=8),
    text_vocab=151_676,
)


def network(config: OmniVoiceConfig, dtype: torch.dtype) -> Network:
    rng = generator(0)
    with torch.device("meta"):
        made = Network(config)
    weights = {
        name: torch.empty(shell.shape).normal_(0, 0.02, generator=rng).to(dtype)
        for name, shell in made.state_dict().items()
    }
    made.load_state_dict(weights, assign=True)
    return made.requires_grad_(False).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("frames", "reference", "guidance", "temperature"),
    [(30, 0, 2.0, 0.0), (400, 0, 2.0, 0.0), (60, 900, 0.0, 0.0), (100, 50, 2.0, 0.5)],
)
def test_unmasking(dtype: torch.dtype, frames: int, reference: int, guidance: float, temperature: float) -> None:
    made = network(CONFIG, dtype)
    prompt = Prompt((1,) * 30, torch.zeros(8, reference, dtype=torch.long) if reference else None, frames)
    how = Unmasking(num_step=2, guidance_scale=guidance, class_temperature=temperature)
    with LiveBytes() as live:
        Unmasker(made, [prompt], how, generator(0)).run("cpu")
    estimated = unmasking_bytes(CONFIG, prompt, how, dtype, CPU)
    print(f"measured {live.peak_bytes:,}, estimated {estimated:,} bytes")
    assert live.peak_bytes <= estimated <= 1.3 * live.peak_bytes + 1.1 * BASE_BYTES


def test_the_official_sizes_stay_small() -> None:
    prompt = Prompt((1,) * 200, torch.zeros(8, 250, dtype=torch.long), 375)
    estimated = unmasking_bytes(REAL, prompt, Unmasking(), torch.float32, CPU)
    assert estimated < 256 << 20
