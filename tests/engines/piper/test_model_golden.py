"""Every quality, several speakers and both duration predictors, against what onnxruntime gave for the same noise."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mizuoto_runtime.engines.piper.model import Encoded
from mizuoto_runtime.engines.piper.weights import Voice, load_voice

GOLDEN = Path(__file__).parents[2] / "golden" / "piper"
RECORDED: dict[str, Any] = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))
CASES = [(name, index) for name, cases in RECORDED["voices"].items() for index in range(len(cases))]
TOLERANCE: float = RECORDED["tolerance"]


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Voice]:
    folder = tmp_path_factory.mktemp("golden")
    loaded = {}
    for name in RECORDED["voices"]:
        (folder / f"{name}.onnx").write_bytes(lzma.decompress((GOLDEN / f"{name}.onnx.xz").read_bytes()))
        shutil.copy(GOLDEN / f"{name}.onnx.json", folder)
        loaded[name] = load_voice(folder / f"{name}.onnx")
    return loaded


def recorded(name: str, index: int) -> tuple[dict[str, torch.Tensor], tuple[float, float, float], int | None]:
    prefix, case = f"{index}.", RECORDED["voices"][name][index]
    arrays = load_file(GOLDEN / f"{name}.safetensors")
    chosen = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    return chosen, tuple(case["scales"]), case["speaker_id"]


def encoded(voice: Voice, name: str, index: int) -> Encoded:
    arrays, (_, length_scale, noise_w), speaker_id = recorded(name, index)
    return voice.encoder(
        arrays["ids"],
        noise=arrays["duration_noise"],
        noise_w=noise_w,
        length_scale=length_scale,
        speaker_id=speaker_id,
    )


@pytest.mark.parametrize(("name", "index"), CASES)
def test_the_whole_model_agrees(voices: dict[str, Voice], name: str, index: int) -> None:
    arrays, (noise_scale, _, _), _ = recorded(name, index)
    result = encoded(voices[name], name, index)
    assert torch.equal(result.durations, arrays["durations"])
    samples = voices[name].decoder(result, noise=arrays["latent_noise"], noise_scale=noise_scale)
    assert samples.dtype == torch.float32
    assert samples.shape == arrays["samples"].shape
    assert arrays["samples"].abs().max() > 100 * TOLERANCE
    torch.testing.assert_close(samples, arrays["samples"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(("name", "index"), CASES)
def test_flow_and_generator_alone_agree(voices: dict[str, Voice], name: str, index: int) -> None:
    arrays, _, _ = recorded(name, index)
    speaker = encoded(voices[name], name, index).speaker
    samples = voices[name].decoder.decode_latents(arrays["latents"], speaker)
    torch.testing.assert_close(samples, arrays["samples"], atol=TOLERANCE, rtol=0)


def test_the_voices_are_what_their_names_say(voices: dict[str, Voice]) -> None:
    sizes = {name: voice.vits for name, voice in voices.items()}
    assert {name: each.generator.paired for name, each in sizes.items()} == {
        name: name.startswith("high") for name in sizes
    }
    assert sizes["high"].generator.upsample_rates == (8, 8, 2, 2)
    assert sizes["medium"].generator.upsample_rates == (8, 8, 4)
    assert sizes["x_low"].text.channels < sizes["low"].text.channels
    assert [sizes["medium_speakers"].num_speakers, sizes["medium_speakers"].speaker_channels] == [5, 6]
    plain = voices["high_speakers_plain_durations"]
    assert not plain.encoder.durations.needs_noise
    assert all(each.hop_length == 256 for each in sizes.values())


def test_speakers_sound_different(voices: dict[str, Voice]) -> None:
    voice = voices["medium_speakers"]
    ids, noise = torch.arange(12)[None], torch.zeros(1, 2, 12)
    first, second = (
        voice.encoder(ids, noise=noise, noise_w=0.0, length_scale=1.0, speaker_id=speaker_id) for speaker_id in (0, 1)
    )
    assert not torch.equal(first.speaker, second.speaker)
    assert torch.equal(first.mean, second.mean)
    durations = torch.full((12,), 2)
    spoken = [
        voice.decoder(
            Encoded(each.mean, each.log_scale, durations, each.speaker), noise=torch.zeros(1, 8, 24), noise_scale=0.0
        )
        for each in (first, second)
    ]
    assert not torch.equal(*spoken)
