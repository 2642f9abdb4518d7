"""Tiny audio tokenizers in the official layout, against what upstream's own class made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mizuoto_runtime.engines.omnivoice.codec_weights import load_modules
from mizuoto_runtime.errors import InputError
from tests.golden.omnivoice.cases import WAVE_STRIDE
from tests.golden.omnivoice.codec.signals import tones

GOLDEN = Path(__file__).parents[2] / "golden" / "omnivoice" / "codec"
RECORDED: dict[str, Any] = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Tensor]] = {
    name: load_file(GOLDEN / name / "cases.safetensors") for name in RECORDED["codecs"]
}


def numbers(kind: str) -> list[tuple[str, int]]:
    """The codec and the number of each case called `kind`.number."""
    found = {(name, int(key.split(".")[1])) for name in CASES for key in CASES[name] if key.startswith(f"{kind}.")}
    assert found
    return sorted(found)


@pytest.mark.parametrize(("name", "length"), numbers("encode"))
def test_encoding_gives_the_same_codes(name: str, length: int) -> None:
    config, encoder, _ = load_modules(GOLDEN / name)
    codes = encoder(tones(length)[None])
    assert codes.dtype == torch.int64 and codes.shape[0] == config.used
    assert torch.equal(codes, CASES[name][f"encode.{length}.codes"].long())


@pytest.mark.parametrize(("name", "frames"), numbers("decode"))
def test_decoding_agrees(name: str, frames: int) -> None:
    config, _, decoder = load_modules(GOLDEN / name)
    samples = decoder(CASES[name][f"decode.{frames}.codes"].long())
    assert samples.dtype == torch.float32 and samples.shape == (1, frames * config.hop_length)
    expected = CASES[name][f"decode.{frames}.samples"]
    assert expected.abs().max() > 1000 * RECORDED["tolerance"]
    torch.testing.assert_close(samples[:, ::WAVE_STRIDE], expected, atol=RECORDED["tolerance"], rtol=0)


@pytest.mark.parametrize("name", RECORDED["codecs"])
def test_the_recordings_can_tell(name: str) -> None:
    """Most codes occur, none is near another one, and samples reach full scale."""
    longest = max(length for codec, length in numbers("encode") if codec == name)
    assert all(len(row.unique()) > 8 for row in CASES[name][f"encode.{longest}.codes"])
    assert RECORDED["codecs"][name]["margin"] > 1e-4
    longest = max(frames for codec, frames in numbers("decode") if codec == name)
    assert CASES[name][f"decode.{longest}.samples"].abs().max() > 0.3


def test_fewer_codebooks_are_decoded_by_what_they_say() -> None:
    _, _, decoder = load_modules(GOLDEN / "plain")
    codes = CASES["plain"]["decode.9.codes"].long()
    few = decoder(codes[:3])
    assert few.shape == (1, 9 * 960) and not torch.equal(few, decoder(codes))


@pytest.mark.parametrize(
    ("wave", "message"),
    [
        (torch.zeros(1, 0), "0 samples can't be encoded"),
        (torch.zeros(1, 10), "10 samples can't be encoded"),
        (torch.zeros(1, 118), "118 samples.*multiple of 960 samples"),
        (torch.zeros(2, 960), r"\(2, 960\) torch\.float32; \(1, samples\) float32 is needed"),
        (torch.zeros(960), r"\(960,\)"),
        (torch.zeros(1, 960, dtype=torch.float64), "float64"),
    ],
)
def test_a_sound_that_cannot_be_encoded_is_refused(wave: Tensor, message: str) -> None:
    _, encoder, _ = load_modules(GOLDEN / "plain")
    with pytest.raises(InputError, match=message):
        encoder(wave)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (torch.zeros(9, 4, dtype=torch.int64), r"the codes are \(9, 4\)"),
        (torch.zeros(0, 4, dtype=torch.int64), r"the codes are \(0, 4\)"),
        (torch.zeros(8, dtype=torch.int64), r"the codes are \(8,\)"),
        (torch.zeros(8, 4, dtype=torch.int32), "int32"),
        (torch.zeros(8, 0, dtype=torch.int64), "no frames"),
        (torch.full((8, 4), 64), "from 64 to 64, the codec has 0 to 63"),
        (torch.full((8, 4), -1), "from -1 to -1"),
    ],
)
def test_codes_that_cannot_be_decoded_are_refused(codes: Tensor, message: str) -> None:
    _, _, decoder = load_modules(GOLDEN / "plain")
    with pytest.raises(InputError, match=message):
        decoder(codes)
