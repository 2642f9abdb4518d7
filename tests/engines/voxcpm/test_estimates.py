"""What is reserved for the language models bounds what they take; and little of a model must be on the device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.voxcpm import MODELS, config_json
from mizuoto_runtime.engines.voxcpm.config import VoxCpmConfig, read_config
from mizuoto_runtime.engines.voxcpm.estimates import BASE_BYTES, model_bytes
from mizuoto_runtime.engines.voxcpm.generate import Sampling, Writer
from mizuoto_runtime.engines.voxcpm.network import VoxCpm
from mizuoto_runtime.engines.voxcpm.prompt import Prompt
from mizuoto_runtime.lm.cache import CacheKind
from mizuoto_runtime.lm.decoder import DecoderConfig
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.seeds import generator
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")
NEW = 3
TRIES = 2
FEW_LAYERS = 1


def described(name: str, folder: Path) -> VoxCpmConfig:
    (folder / "config.json").write_text(json.dumps(config_json(name, torch.bfloat16)), encoding="utf-8")
    return read_config(folder)


def few_layers(config: VoxCpmConfig) -> VoxCpmConfig:
    """The real widths, but little to compute."""

    def fewer(decoder: DecoderConfig) -> DecoderConfig:
        return replace(decoder, layers=FEW_LAYERS)

    return replace(
        config,
        lm=fewer(config.lm),
        residual=fewer(config.residual),
        encoder=fewer(config.encoder),
        dit=fewer(config.dit),
        vocab=200,
    )


def random_model(config: VoxCpmConfig, dtype: torch.dtype) -> VoxCpm:
    with torch.device("meta"):
        model = VoxCpm(config)
    rng = generator(0)
    weights = {name: torch.empty(shell.shape, dtype=dtype) for name, shell in model.state_dict().items()}
    for weight in weights.values():
        weight.uniform_(-0.02, 0.02, generator=rng)
    model.load_state_dict(weights, assign=True)
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("name", "ids", "patches", "kind", "dtype"),
    [
        ("0.5B", 500, 0, "dynamic", torch.float32),
        ("0.5B", 30, 200, "static", torch.bfloat16),
        ("2", 200, 60, "dynamic", torch.bfloat16),
        ("2", 12, 0, "dynamic", torch.float32),
    ],
)
def test_working_memory(
    tmp_path: Path, name: str, ids: int, patches: int, kind: CacheKind, dtype: torch.dtype
) -> None:
    config = few_layers(described(name, tmp_path))
    model = random_model(config, dtype)
    sound = torch.zeros(patches, config.patch, config.latent) if patches else None
    prompt = Prompt((1,) * ids, ids, None, sound)
    with LiveBytes() as live:
        writer = Writer(model, prompt, Sampling(inference_timesteps=3), NEW, generator(0), CPU, kind)
        start, positions = writer.state.copy(), writer.positions
        for _ in range(TRIES):
            writer.go_back(start, positions)
            while not writer.finished:
                writer.patch()
    estimated = model_bytes(config, prompt.positions, NEW, kind, dtype, CPU)
    print(f"measured {live.peak_bytes:,}, estimated {estimated:,} bytes")
    assert live.peak_bytes <= estimated <= 1.7 * live.peak_bytes + 1.1 * BASE_BYTES


@pytest.mark.parametrize(("name", "size_mb", "least_mb"), [("0.5B", 1305, 60), ("1.5", 1604, 60), ("2", 4580, 200)])
def test_little_of_the_real_sizes_has_to_be_on_the_device(
    tmp_path: Path, name: str, size_mb: int, least_mb: int
) -> None:
    assert name in MODELS
    with torch.device("meta"):
        model = VoxCpm(described(name, tmp_path)).to(torch.bfloat16)
    handle = ModelHandle("model", model, "sequence")
    handle.mark(model.base_lm.embed_tokens, "gather")
    handle.mark(model.feat_encoder, "hot")
    handle.mark(model.feat_decoder, "hot")
    print(f"{handle.size_bytes:,} bytes, minimum {handle.minimum_bytes(1):,}")
    assert handle.size_bytes == pytest.approx(size_mb * 1e6, rel=0.01)
    assert handle.minimum_bytes(1) < least_mb * 1e6


def test_keys_and_values_take_as_much_room_as_the_request_needs(tmp_path: Path) -> None:
    config = described("2", tmp_path)
    short, long = (model_bytes(config, 40, new, "static", torch.bfloat16, CPU) for new in (100, 1100))
    each = 2 * config.lm.kv_heads * config.lm.head_dim * 2
    assert long - short == pytest.approx(each * (config.lm.layers + config.residual.layers + 0.5) * 1000, rel=0.01)


def test_where_attention_holds_all_scores_they_count(tmp_path: Path) -> None:
    config = described("2", tmp_path)
    fused, held = (
        model_bytes(config, 2000, 10, "dynamic", torch.float32, torch.device(name)) for name in ("cuda", "mps")
    )
    assert held - fused == 2 * 4 * config.lm.heads * 2000**2
