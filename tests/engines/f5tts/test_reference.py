"""Recordings of any rate, channels, batch and length, as upstream prepares them, and those that are refused."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mizuoto_runtime.audio.silence import Pcm
from mizuoto_runtime.engines.f5tts.reference import prepare_reference, prepare_whole, restore_level
from mizuoto_runtime.engines.f5tts.silence import prepared, tail_frames, to_pcm
from mizuoto_runtime.errors import InputError
from tests.engines.f5tts.recorded import GOLDEN, TOLERANCE, reference, shown, sound
from tests.golden.f5tts import text_cases
from tests.golden.f5tts.sounds import noise

NUMBERS = range(len(text_cases.RECORDINGS))


def digest(samples: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(samples).tobytes()).hexdigest()[:32]


def tone(seconds: float, rate_hz: int, amplitude: float = 0.5) -> Tensor:
    steps = torch.arange(round(seconds * rate_hz), dtype=torch.float64)
    return (amplitude * torch.sin(2 * math.pi * 440 / rate_hz * steps)).float()


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_kept_is_upstreams_sample_for_sample(number: int) -> None:
    samples, rate_hz = sound(number)
    kept, _ = prepared(to_pcm(samples.numpy(), rate_hz))
    recorded = GOLDEN["recordings"][number]
    assert (kept.rate_hz, len(kept.samples)) == (recorded["rate_hz"], recorded["frames"])
    assert digest(kept.samples) == recorded["sha256"]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_reaches_the_model_is_upstreams(number: int) -> None:
    given, recorded = reference(number), GOLDEN["recordings"][number]
    assert len(given.samples) == recorded["length"] and given.frames == recorded["length"] // 256
    assert given.seconds == recorded["frames"] / recorded["rate_hz"]
    assert shown(given.samples).tolist() == pytest.approx(recorded["samples"], abs=TOLERANCE)
    level = float(restore_level(torch.ones(1), given.rms))
    assert level == pytest.approx(recorded["level"], rel=TOLERANCE)


def test_numbers_between_whole_ones_become_whole_as_in_a_file() -> None:
    numbers = (noise(np.arange(20_000), 5) * 70_000 + noise(np.arange(20_000), 6)).astype(np.float32) / 2.0**31
    whole = to_pcm(numbers[None], 24_000).samples[:, 0]
    assert whole[: len(GOLDEN["pcm"]["first"])].tolist() == GOLDEN["pcm"]["first"]
    assert digest(whole) == GOLDEN["pcm"]["sha256"]


def test_every_16_bit_number_is_itself_again() -> None:
    numbers = np.arange(-32_768, 32_768, dtype=np.int32)
    assert np.array_equal(to_pcm(numbers[None].astype(np.float32) / 32_768, 8_000).samples[:, 0], numbers)


def test_24_bit_numbers_keep_their_bits_as_pydub_widens_them() -> None:
    numbers = np.array([-(1 << 23), -257, -256, -1, 0, 1, 256, (1 << 23) - 1])
    wide = to_pcm(numbers[None].astype(np.float32) / (1 << 23), 8_000).samples[:, 0]
    assert wide.dtype == np.int32 and wide.tolist() == [number * 256 + (255 if number < 0 else 0) for number in numbers]


@pytest.mark.parametrize(("rate_hz", "frames"), [(11_025, 551), (16_000, 799), (22_050, 1101), (48_000, 2395)])
def test_the_silence_at_the_end(rate_hz: int, frames: int) -> None:
    samples = prepare_reference(tone(1.0, rate_hz), rate_hz)
    assert tail_frames(rate_hz) == frames
    assert samples.seconds == pytest.approx(1.0 + frames / rate_hz, abs=0.011)


@pytest.mark.parametrize("shape", [(-1,), (1, -1), (1, 1, -1)])
def test_mono_in_every_shape(shape: tuple[int, ...]) -> None:
    given = prepare_reference(tone(0.6, 24_000).reshape(shape), 24_000)
    assert torch.equal(given.samples, prepare_reference(tone(0.6, 24_000), 24_000).samples)


def test_channels_are_averaged_and_the_level_is_that_of_the_mean() -> None:
    left, right = tone(2.0, 24_000, 0.4), torch.zeros(48_000)
    given = prepare_reference(torch.stack((left, right)), 24_000)
    assert given.rms == pytest.approx(0.2 / math.sqrt(2) * math.sqrt(2.0 / given.seconds), rel=1e-2)


def test_a_quiet_recording_is_raised_and_speech_lowered_again() -> None:
    quiet, loud = prepare_reference(tone(1.0, 24_000, 0.05), 24_000), prepare_reference(tone(1.0, 24_000), 24_000)
    assert quiet.samples.square().mean().sqrt() == pytest.approx(0.1, rel=1e-5)
    assert quiet.rms == pytest.approx(0.035, rel=0.05) and loud.rms > 0.1
    made = torch.randn(100)
    assert torch.allclose(restore_level(made, quiet.rms), made * quiet.rms * 10)
    assert restore_level(made, loud.rms) is made


def test_of_a_batch_the_first_that_is_not_silent_is_taken() -> None:
    batch = torch.stack((torch.zeros(2, 24_000), tone(1.0, 24_000).expand(2, -1), torch.ones(2, 24_000)))
    given = prepare_reference(batch, 24_000)
    assert torch.equal(given.samples, prepare_reference(tone(1.0, 24_000), 24_000).samples)
    assert given.notes == ("the reference is a batch of 3; number 2 was used",)


def test_of_a_long_recording_the_beginning_is_taken_and_that_is_said() -> None:
    given = prepare_reference(tone(75.0, 16_000), 16_000)
    assert given.seconds == pytest.approx(12.05, abs=0.001)
    (note,) = given.notes
    assert "75.0 s long; its first 12.0 s of sound" in note and "A transcript must be of that part only" in note


def test_a_recording_that_is_long_by_its_silences_only_is_used_whole() -> None:
    pause = torch.zeros(8 * 16_000)
    given = prepare_reference(torch.cat((tone(2.0, 16_000), pause, tone(2.0, 16_000))), 16_000)
    assert given.seconds == pytest.approx(2 + 1 + 1 + 2 + 0.05, abs=0.03) and given.notes == ()


def test_a_very_short_recording_is_used_and_that_is_said() -> None:
    given = prepare_reference(tone(0.03, 24_000), 24_000)
    assert given.notes == ("the reference has 0.03 s of sound; 3 to 12 s are best",) and given.frames > 0


@pytest.mark.parametrize("number", [2, 14])
def test_loudness_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    samples, rate_hz = sound(number)
    pcm = to_pcm(samples.numpy(), rate_hz)
    whole, _ = prepared(pcm)
    monkeypatch.setattr("mizuoto_runtime.audio.silence._BLOCK_FRAMES", 10_007)
    assert np.array_equal(prepared(pcm)[0].samples, whole.samples)


def test_a_part_past_the_last_frame_is_filled_up() -> None:
    pcm = Pcm(np.ones((27, 2), dtype=np.int16), 1_000 * 3 // 2)
    assert pcm.length_ms == 18 and len(pcm.part(0, 18).samples) == 27
    odd = Pcm(np.ones((17, 1), dtype=np.int16), 1_900)
    assert odd.length_ms == 9 and len(odd.part(0, 9).samples) == 17
    short = Pcm(np.ones((9, 1), dtype=np.int16), 5_000 // 2)
    assert short.length_ms == 4 and short.part(2, 4).samples[:, 0].tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("samples", "rate_hz", "message"),
    [
        (torch.zeros(24_000), 24_000, r"is silent: its peak is 0\.0e\+00"),
        (tone(3.0, 24_000, 0.005), 24_000, r"is silent: nothing in it is louder than -42 dB"),
        (tone(0.2, 24_000, 0.005), 24_000, r"is silent: nothing in it is louder"),
        (torch.stack((tone(1.0, 24_000), -tone(1.0, 24_000))), 24_000, "is silent"),
        (torch.full((24_000,), float("nan")), 24_000, "aren't finite"),
        (torch.ones(0), 24_000, "samples are needed"),
        (torch.ones(1, 1, 1, 5), 24_000, "samples are needed"),
        (torch.ones(24_000), 10, "has 10 Hz"),
    ],
)
def test_what_is_no_use_is_refused(samples: Tensor, rate_hz: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare_reference(samples, rate_hz)


def test_a_recording_to_edit_is_neither_cut_nor_rounded() -> None:
    samples = torch.cat((torch.zeros(24_000), tone(14.0, 24_000, 0.3), torch.zeros(48_000)))
    given = prepare_whole(samples, 24_000)
    assert torch.equal(given.samples, samples) and given.seconds == 17.0 and given.notes == ()
    quiet = prepare_whole(samples * 0.2, 24_000)
    assert quiet.rms < 0.1 and torch.allclose(quiet.samples, samples * 0.2 * 0.1 / quiet.rms)


def test_the_recording_is_not_changed() -> None:
    samples = tone(0.5, 44_100, 0.05).expand(2, -1).contiguous()
    before = samples.clone()
    prepare_reference(samples, 44_100)
    prepare_whole(samples, 44_100)
    assert torch.equal(samples, before)
