"""Tiny codecs and a speaker encoder in the official layout, against what upstream's own classes made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mizuoto_runtime.audio.mel import slaney_log_mel
from mizuoto_runtime.audio.resample import resample_soxr
from mizuoto_runtime.engines.qwen3tts import codec_encoder
from mizuoto_runtime.engines.qwen3tts.codec_weights import load_codec, load_speaker_encoder
from tests.golden.qwen3tts.signals import exact_signal

GOLDEN = Path(__file__).parents[2] / "golden" / "qwen3tts"
RECORDED: dict[str, Any] = json.loads((GOLDEN / "codec.json").read_text(encoding="utf-8"))
TOLERANCES: dict[str, float] = RECORDED["tolerances"]
CASES: dict[str, dict[str, Tensor]] = {
    name: load_file(GOLDEN / name / "cases.safetensors") for name in (*RECORDED["codecs"], "speaker")
}


def numbers(kind: str, *folders: str) -> list[tuple[str, int]]:
    """The folder and the number of each case called `kind`.number."""
    found = {
        (folder, int(key.split(".")[1])) for folder in folders for key in CASES[folder] if key.startswith(f"{kind}.")
    }
    assert found
    return sorted(found)


@pytest.mark.parametrize(("name", "frames"), numbers("decode", *RECORDED["codecs"]))
def test_decoding_agrees(name: str, frames: int) -> None:
    decoder, _ = load_codec(GOLDEN / name, torch.float32, encoding=False)
    expected = CASES[name][f"decode.{frames}.samples"]
    samples = decoder.decode(CASES[name][f"decode.{frames}.codes"].long())
    assert samples.dtype == torch.float32 and samples.shape == expected.shape
    assert expected.abs().max() > 1000 * TOLERANCES["samples"]
    torch.testing.assert_close(samples, expected, atol=TOLERANCES["samples"], rtol=0)


@pytest.mark.parametrize(("name", "length"), numbers("encode", *RECORDED["codecs"]))
def test_encoding_gives_the_same_codes(name: str, length: int) -> None:
    _, encoder = load_codec(GOLDEN / name, torch.float32)
    assert encoder is not None
    expected = CASES[name][f"encode.{length}.codes"].long()
    codes = encoder.encode(exact_signal(length))
    assert codes.dtype == torch.int64 and codes.shape[1] == -(-length // encoder.config.hop_length)
    assert torch.equal(codes, expected)


@pytest.mark.parametrize("name", RECORDED["codecs"])
def test_the_recordings_can_tell(name: str) -> None:
    """Long ones are computed in tiles and chunks, samples reach full scale, and most codes occur."""
    longest = max(length for _, length in numbers("encode", name))
    assert longest > codec_encoder.TILE_SAMPLES
    codes = CASES[name][f"encode.{longest}.codes"]
    assert all(len(row.unique()) > 8 for row in codes)
    longest = max(frames for _, frames in numbers("decode", name))
    assert longest > 300
    assert CASES[name][f"decode.{longest}.samples"].abs().max() == 1


@pytest.mark.parametrize(("name", "length"), numbers("mel", "speaker"))
def test_speakers_are_embedded_alike(name: str, length: int) -> None:
    speaker_encoder = load_speaker_encoder(GOLDEN / name, torch.float32)
    mel = slaney_log_mel(exact_signal(length), speaker_encoder.config.mel)
    torch.testing.assert_close(mel, CASES[name][f"mel.{length}"], atol=TOLERANCES["mel"], rtol=0)
    expected = CASES[name][f"embedding.{length}"]
    assert expected.std() > 1e-2
    torch.testing.assert_close(speaker_encoder(mel), expected, atol=TOLERANCES["embedding"], rtol=0)


@pytest.mark.parametrize(("name", "rate_hz"), numbers("resampled", "speaker"))
def test_recordings_are_resampled_alike(name: str, rate_hz: int) -> None:
    expected = CASES[name][f"resampled.{rate_hz}"]
    resampled = resample_soxr(exact_signal(3000), rate_hz, 24_000)
    torch.testing.assert_close(resampled, expected, atol=TOLERANCES["resampled"], rtol=0)
