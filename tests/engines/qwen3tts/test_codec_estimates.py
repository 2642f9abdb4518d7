"""Working memory is what was estimated or less, and not much less once inputs are long."""

from __future__ import annotations

import pytest
import torch

from mizuoto_runtime.engines.qwen3tts.codec_decoder import CodecDecoder
from mizuoto_runtime.engines.qwen3tts.codec_encoder import CodecEncoder
from mizuoto_runtime.engines.qwen3tts.codec_estimates import BASE_BYTES, decoder_bytes, encoder_bytes, speaker_bytes
from mizuoto_runtime.engines.qwen3tts.speaker_encoder import SpeakerEncoder
from tests.engines.qwen3tts.codec_models import REAL, REAL_SPEAKER, SMALL, with_random_weights
from tests.memory.live_bytes import LiveBytes

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def check(measured_bytes: int, estimated_bytes: int) -> None:
    print(f"measured {measured_bytes:,}, estimated {estimated_bytes:,} bytes")
    assert measured_bytes <= estimated_bytes <= 1.5 * measured_bytes + 1.1 * BASE_BYTES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("frames", [1, 100, 325, 900])
def test_decoding(frames: int, dtype: torch.dtype) -> None:
    decoder = with_random_weights(CodecDecoder(SMALL.decoder), dtype)
    codes = torch.zeros(SMALL.decoder.quantizers, frames, dtype=torch.int64)
    with LiveBytes() as live:
        decoder.decode(codes)
    check(live.peak_bytes, decoder_bytes(decoder, frames, CPU))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("samples", [1, 24_000, 150_000])
def test_encoding(samples: int, dtype: torch.dtype) -> None:
    encoder = with_random_weights(CodecEncoder(SMALL.encoder), dtype)
    sound = torch.zeros(samples)
    with LiveBytes() as live:
        encoder.encode(sound)
    check(live.peak_bytes, encoder_bytes(encoder, samples, CPU))


@pytest.mark.parametrize("samples", [2000, 400_000])
def test_embedding(samples: int) -> None:
    encoder = with_random_weights(SpeakerEncoder(REAL_SPEAKER))
    with LiveBytes() as live:
        encoder(torch.zeros(samples // 256, 128))
    check(live.peak_bytes, speaker_bytes(encoder, samples))


def test_the_real_sizes_take_a_share_of_what_upstream_needs() -> None:
    """24 s at once: upstream's last stage alone holds several tensors of 240 MB."""
    with torch.device("meta"):
        decoder, encoder = CodecDecoder(REAL.decoder), CodecEncoder(REAL.encoder)
    assert decoder_bytes(decoder, 300, CPU) < 300e6
    assert encoder_bytes(encoder, 576_000, CPU) < 150e6
