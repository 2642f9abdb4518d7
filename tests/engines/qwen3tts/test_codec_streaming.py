"""Codec and speaker encoder on a simulated, strict device: the same results, whatever streams, within the budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mizuoto_runtime.engines.qwen3tts.codec_decoder import CodecDecoder
from mizuoto_runtime.engines.qwen3tts.codec_encoder import CodecEncoder
from mizuoto_runtime.engines.qwen3tts.speaker_encoder import SpeakerEncoder
from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from tests.engines.qwen3tts.codec_models import REAL, REAL_SPEAKER, SMALL, SMALL_SPEAKER, with_random_weights
from tests.golden.qwen3tts.signals import exact_signal
from tests.memory.placed import place_within


def decoder() -> nn.Module:
    return with_random_weights(CodecDecoder(SMALL.decoder))


def encoder() -> nn.Module:
    return with_random_weights(CodecEncoder(SMALL.encoder))


def speaker_encoder() -> nn.Module:
    return with_random_weights(SpeakerEncoder(SMALL_SPEAKER))


def decode(module: Any) -> Tensor:
    codes = torch.randint(256, (4, 310), generator=torch.Generator().manual_seed(2))
    samples: Tensor = module.decode(codes)
    return samples


def encode(module: Any) -> Tensor:
    codes: Tensor = module.encode(exact_signal(70_001))
    return codes


def embed(module: Any) -> Tensor:
    embedding: Tensor = module(exact_signal(128 * 40).reshape(40, 128))
    return embedding


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Tensor]]] = {
    "decoder": (decoder, decode),
    "encoder": (encoder, encode),
    "speaker encoder": (speaker_encoder, embed),
}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_streamed_and_resident_agree(kind: str, share: float) -> None:
    made, run = KINDS[kind]
    expected = run(made())
    assert expected.float().std() > 1e-3
    module = made()
    handle = ModelHandle(kind, module, "oneshot")
    if isinstance(module, CodecDecoder):
        for embedding in module.embeddings():
            handle.mark(embedding, "gather")
    least = handle.minimum_bytes(1)
    assert least < handle.size_bytes / 2
    budget = round(least + share * (handle.size_bytes - least))
    device = SimulatedDevice("sim", budget, strict=True)
    place_within(budget, device, handle)
    assert torch.equal(run(module), expected)
    assert device.peak_bytes <= budget
    assert handle.whole is (share == 1.0) and (handle.streamed_bytes > 0) is (share < 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_little_of_the_real_sizes_has_to_be_on_the_device(dtype: torch.dtype) -> None:
    """Bytes in float32: of the decoder 456 M, the encoder 190 M, the speaker encoder 48 M."""
    with torch.device("meta"):
        modules = CodecDecoder(REAL.decoder), CodecEncoder(REAL.encoder), SpeakerEncoder(REAL_SPEAKER)
    for module, size_mb, least_mb in zip(modules, (456, 190, 48), (80, 36, 28), strict=True):
        handle = ModelHandle("h", module.to(dtype), "oneshot")
        if isinstance(module, CodecDecoder):
            for embedding in module.embeddings():
                handle.mark(embedding, "gather")
        scale = dtype.itemsize / 4
        print(f"{type(module).__name__} {dtype}: {handle.size_bytes:,} bytes, minimum {handle.minimum_bytes(1):,}")
        assert handle.size_bytes == pytest.approx(scale * size_mb * 1e6, rel=0.05)
        assert handle.minimum_bytes(1) < scale * least_mb * 1e6


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_cancelling_is_noticed_within_a_tile_or_a_layer(kind: str) -> None:
    module: Any = KINDS[kind][0]()
    calls = 0

    def check(last: int) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Cancelled("enough")

    run = module.decode if kind == "decoder" else module.encode
    request = torch.zeros(4, 310, dtype=torch.int64) if kind == "decoder" else exact_signal(70_001)
    run(request, lambda: check(0))
    least = len(module.transformer.layers) + len(module.memory_units()) // 2
    total, calls = calls, 0
    assert total > least
    with pytest.raises(Cancelled):
        run(request, lambda: check(total))
    calls = 0
    with pytest.raises(Cancelled):
        run(request, lambda: check(1))
