"""Both halves of the codec on a simulated, strict device: the same results, whatever streams, within the budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mizuoto_runtime.engines.omnivoice import codec_layers
from mizuoto_runtime.engines.omnivoice.codec_decoder import CodecDecoder
from mizuoto_runtime.engines.omnivoice.codec_encoder import CodecEncoder
from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from tests.engines.omnivoice.codec_models import REAL, SMALL, with_random_weights
from tests.golden.omnivoice.codec.signals import tones
from tests.memory.placed import place_within


def decoder() -> nn.Module:
    return with_random_weights(CodecDecoder(SMALL))


def encoder() -> nn.Module:
    return with_random_weights(CodecEncoder(SMALL))


def given(kind: str) -> Tensor:
    if kind == "encoder":
        return tones(960 * 40)[None]
    generator = torch.Generator().manual_seed(2)
    return torch.randint(SMALL.codebook_size, (SMALL.quantizers, 40), generator=generator)


MAKE: dict[str, Callable[[], nn.Module]] = {"decoder": decoder, "encoder": encoder}


def placed(kind: str, module: nn.Module) -> ModelHandle:
    handle = ModelHandle(kind, module, "oneshot")
    if isinstance(module, CodecDecoder):
        for embedding in module.embeddings():
            handle.mark(embedding, "gather")
    return handle


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_layers, "TILE_ELEMENTS", 1 << 17)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", MAKE)
def test_streamed_and_resident_agree(kind: str, share: float) -> None:
    expected = MAKE[kind]()(given(kind))
    assert expected.float().std() > 1e-3
    module = MAKE[kind]()
    handle = placed(kind, module)
    least = handle.minimum_bytes(1)
    assert least < handle.size_bytes / 2
    budget = round(least + share * (handle.size_bytes - least))
    device = SimulatedDevice("sim", budget, strict=True)
    place_within(budget, device, handle)
    assert torch.equal(module(given(kind)), expected)
    assert device.peak_bytes <= budget
    assert handle.whole is (share == 1.0) and (handle.streamed_bytes > 0) is (share < 1.0)


def test_little_of_the_real_sizes_has_to_be_on_the_device() -> None:
    """MB in float32, in all and at least: the largest layers of the last acoustic and of the first decoder stage."""
    with torch.device("meta"):
        modules: dict[str, nn.Module] = {"decoder": CodecDecoder(REAL), "encoder": CodecEncoder(REAL)}
    for (kind, module), size_mb, least_mb in zip(modules.items(), (86, 652), (36, 53), strict=True):
        handle = placed(kind, module)
        print(f"{kind}: {handle.size_bytes:,} bytes, minimum {handle.minimum_bytes(1):,}")
        assert handle.size_bytes == pytest.approx(size_mb * 1e6, rel=0.05)
        assert handle.minimum_bytes(1) < least_mb * 1e6


@pytest.mark.parametrize("kind", MAKE)
def test_cancelling_is_noticed_within_a_tile_or_a_layer(kind: str) -> None:
    module: Any = MAKE[kind]()
    calls = 0

    def check(last: int) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Cancelled("enough")

    module(given(kind), lambda: check(0))
    total, calls = calls, 0
    assert total > len(module.memory_units()) // 2
    for last in (1, total):
        calls = 0
        with pytest.raises(Cancelled):
            module(given(kind), lambda last=last: check(last))  # type: ignore[misc]
