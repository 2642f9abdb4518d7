"""Working memory is what was estimated or less, and not much less once inputs are long; in tiles it stays bounded."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.engines.omnivoice import codec_layers
from mizuoto_runtime.engines.omnivoice.codec_decoder import CodecDecoder, tile_frames
from mizuoto_runtime.engines.omnivoice.codec_encoder import CodecEncoder, tile_samples
from mizuoto_runtime.engines.omnivoice.codec_estimates import BASE_BYTES, decoder_bytes, encoder_bytes
from tests.engines.omnivoice.codec_models import REAL, SMALL, with_random_weights
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")


def check(measured_bytes: int, estimated_bytes: int) -> None:
    print(f"measured {measured_bytes:,}, estimated {estimated_bytes:,} bytes")
    assert measured_bytes <= estimated_bytes <= 1.3 * measured_bytes + 1.1 * BASE_BYTES


@pytest.mark.parametrize("frames", [1, 40, 300])
@pytest.mark.parametrize("tile_elements", [1 << 18, codec_layers.TILE_ELEMENTS])
def test_decoding(frames: int, tile_elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_layers, "TILE_ELEMENTS", tile_elements)
    decoder = with_random_weights(CodecDecoder(SMALL))
    codes = torch.zeros(SMALL.quantizers, frames, dtype=torch.int64)
    with LiveBytes() as live:
        decoder(codes)
    check(live.peak_bytes, decoder_bytes(SMALL, frames, CPU))


@pytest.mark.parametrize("frames", [1, 40, 300])
@pytest.mark.parametrize("tile_elements", [1 << 18, codec_layers.TILE_ELEMENTS])
def test_encoding(frames: int, tile_elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_layers, "TILE_ELEMENTS", tile_elements)
    encoder = with_random_weights(CodecEncoder(SMALL))
    sound = torch.zeros(1, 960 * frames)
    with LiveBytes() as live:
        encoder(sound)
    check(live.peak_bytes, encoder_bytes(SMALL, 960 * frames, CPU))


def test_the_real_sizes_stay_bounded() -> None:
    """A minute at once: upstream holds several tensors of 184 MB for the decoder, of 369 MB for the encoder."""
    assert decoder_bytes(REAL, 1500, CPU) < 280e6
    assert encoder_bytes(REAL, 60 * 24_000, CPU) < 640e6
    assert decoder_bytes(REAL, 100, CPU) < 65e6 and encoder_bytes(REAL, 100 * 960, CPU) < 110e6


@pytest.mark.parametrize("frames", [61, 200])
def test_tiles_change_the_last_bits_only(frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, encoder = with_random_weights(CodecDecoder(SMALL)), with_random_weights(CodecEncoder(SMALL))
    codes = torch.randint(SMALL.codebook_size, (SMALL.quantizers, frames), generator=torch.Generator().manual_seed(1))
    wave = 0.1 * torch.randn(1, 1, frames * 960, generator=torch.Generator().manual_seed(2))
    whole = decoder(codes), encoder.acoustic(wave, lambda: None)
    monkeypatch.setattr(codec_layers, "TILE_ELEMENTS", 1 << 17)
    assert tile_frames(SMALL) < 40 and tile_samples(SMALL.encoder_channels) < 30_000
    for tiled, expected in zip((decoder(codes), encoder.acoustic(wave, lambda: None)), whole, strict=True):
        assert tiled.shape == expected.shape
        assert (tiled - expected).abs().max() < 1e-5 * expected.abs().max()
