"""Requests as users make them: what they give, and what is refused or warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mizuoto_runtime.engines.f5tts.phases import Mel
from mizuoto_runtime.engines.f5tts.sampler import PRUNED_OF_32, Sampling, batch_of, draw_noise, step_times
from mizuoto_runtime.engines.f5tts.spans import parse_durations, parse_spans
from mizuoto_runtime.engines.f5tts.weights import Modules
from mizuoto_runtime.errors import InputError, NotFinite
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio, Output
from tests.engines.damage import WRONG, damage
from tests.engines.f5tts.conftest import audio
from tests.engines.f5tts.recorded import GOLDEN, reference, sound
from tests.golden.f5tts import text_cases

REFERENCE = {"length": 30_000, "seed": 51, "rate_hz": 24_000}
TEXT = "We all went home again."


def speak(session: Session, model: str = "v1", text: str = TEXT, *, seed: int = 1, **given: Any) -> Output:
    names = ("reference", "reference_text", "recording", "voice")
    inputs = {name: given.pop(name) for name in names if name in given}
    if "recording" not in inputs:
        inputs = {"reference": audio(**REFERENCE), "reference_text": "It was so.", **inputs}
    given.setdefault("nfe_step", 1)
    return session.speak(session.find("f5tts", model), SpeakRequest(text=text, seed=seed, inputs=inputs, options=given))


def seconds(output: Output) -> float:
    return output.audio.duration_seconds


def test_a_request_is_repeatable_and_another_seed_differs(session: Session) -> None:
    long = "First we ate. Then, all of us slept. So it was, and so it is. " * 4
    first, again = speak(session, text=long), speak(session, text=long)
    assert seconds(first) > 20, "several pieces"
    assert torch.equal(first.audio.samples, again.audio.samples)
    assert not torch.equal(first.audio.samples, speak(session, text=long, seed=2).audio.samples)


def test_speed_and_a_fixed_duration_say_how_long_it_is(session: Session) -> None:
    usual = seconds(speak(session))
    assert seconds(speak(session, speed=2.0)) == pytest.approx(usual / 2, abs=0.02)
    used = 1.25 + 0.05
    assert seconds(speak(session, fix_duration=4.0)) == pytest.approx(4.0 - used, abs=0.05)
    short = speak(session, fix_duration=1.0)
    assert "leaves no time beside the reference's" in str(short.meta["warnings"])


@pytest.mark.parametrize("number", [6, 13, 14])
def test_pieces_are_as_many_and_as_long_as_upstreams(session: Session, number: int) -> None:
    case, sampled = text_cases.SPEECHES[number], GOLDEN["speeches"][number]["sampled"]
    files = session.find("f5tts", "v1")
    given = {"reference": Audio(*sound(case["recording"])), "reference_text": case["reference_text"]}
    (voice,) = session.run_phase(files, "reference", given, {})
    options = {"nfe_step": 1, "cfg_strength": 0.0, "fix_duration": case.get("fix_duration", 0.0)}
    (mel,) = session.run_phase(files, "sample", {"text": case["text"], "voice": voice}, options)
    assert isinstance(mel.value, Mel)
    made = [len(piece) + reference(case["recording"]).frames for piece in mel.value.pieces]
    assert made == sampled and not mel.reports[-1].warnings


def test_the_speech_is_as_loud_as_a_quiet_reference(session: Session) -> None:
    plain = speak(session, reference=audio(**REFERENCE, gain=0.1))
    quiet = speak(session, reference=audio(**REFERENCE, gain=0.05))
    ratio = plain.audio.samples.abs().mean() / quiet.audio.samples.abs().mean()
    assert float(ratio) == pytest.approx(2, rel=0.1)


def test_a_long_reference_is_cut_and_said_so(session: Session) -> None:
    output = speak(session, reference=audio(length=14 * 24_000, seed=5))
    assert "A transcript must be of that part only" in str(output.meta["warnings"])


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_missing_transcript_is_said(session: Session, text: str) -> None:
    with pytest.raises(InputError, match="reference's text is missing: write down what is said"):
        speak(session, reference_text=text)


def test_without_a_reference_the_request_says_what_it_needs(session: Session) -> None:
    with pytest.raises(InputError, match="it also needs: reference"):
        session.speak(session.find("f5tts", "v1"), SpeakRequest(text=TEXT))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nfe_step": 0}, "'nfe_step' is 0; it must be a whole number from 1 to 1000"),
        ({"cfg_strength": -1}, "'cfg_strength'"),
        ({"sway_sampling_coef": -1.1}, "'sway_sampling_coef'"),
        ({"ode_method": "rk4"}, "Known: euler, midpoint"),
        ({"parts_to_edit": "1-2"}, "no use for parts_to_edit"),
    ],
)
def test_options_out_of_range_are_refused(session: Session, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        speak(session, **options)


def test_an_edited_recording_keeps_the_rest(session: Session) -> None:
    recording = Audio(audio(**REFERENCE).samples, 24_000)
    output = speak(session, recording=recording, parts_to_edit="0.5-0.75", part_durations="0.5")
    assert seconds(output) == pytest.approx(1.25 + 0.25, abs=0.03)
    plain = speak(session, recording=recording, parts_to_edit="0.5-0.75", part_durations="0.5", seed=2)
    kept = 24_000 // 4
    assert torch.equal(output.audio.samples[:, :kept], plain.audio.samples[:, :kept])
    assert not torch.equal(output.audio.samples, plain.audio.samples)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "the spans are ''"),
        ({"parts_to_edit": "0.5"}, "the spans are '0.5'; write the start and end of each"),
        ({"parts_to_edit": "one-two"}, "the spans are 'one-two'"),
        ({"parts_to_edit": "0.5-0.2"}, "isn't one"),
        ({"parts_to_edit": "9-10"}, "starts behind the end: the recording has 1.26 s"),
        ({"parts_to_edit": "0.2-0.3", "part_durations": "1, 2"}, "2 durations are given for 1 spans"),
        ({"parts_to_edit": "0.2-0.3", "part_durations": "long"}, "the durations are 'long'"),
    ],
)
def test_spans_that_cannot_be_are_refused(session: Session, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        speak(session, recording=audio(**REFERENCE), **options)


def test_a_recording_too_short_for_a_spectrogram_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match="400 samples long at 24,000 Hz, 513 are needed"):
        speak(session, recording=audio(length=400, seed=1), parts_to_edit="0-0.01")


@pytest.mark.parametrize(
    ("samples", "rate_hz", "problem"),
    [
        (torch.zeros(1, 9_000), 24_000, "the recording is silent"),
        (torch.tensor([[0.5], [-0.5]]).repeat(1, 9_000), 24_000, "the recording is silent"),
        (torch.full((1, 9_000), 1e9), 24_000, "the recording's peak is"),
        (torch.ones(1, 9_000), 16, "the recording has 16 Hz"),
    ],
)
def test_what_is_wrong_with_a_recording_to_edit_is_said_of_it(
    session: Session, samples: torch.Tensor, rate_hz: int, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        speak(session, recording=Audio(samples, rate_hz), parts_to_edit="0-0.1")


@pytest.mark.parametrize("text", ["1.42-2.44, 4.04-4.9", "[[1.42, 2.44], [4.04, 4.9]]", "1.42 2.44; 4.04 – 4.9"])
def test_spans_are_read_in_several_forms(text: str) -> None:
    assert parse_spans(text) == ((1.42, 2.44), (4.04, 4.9))
    assert parse_durations("[1.2, 1]") == (1.2, 1.0)
    assert parse_durations(" ") is None


def test_a_model_of_bigvgans_spectrograms_has_no_sound_yet(session: Session) -> None:
    with pytest.raises(InputError, match="BigVGAN's, for which there is no vocoder"):
        speak(session, "varied-dit")


def test_a_chain_of_nodes_may_mix_no_two_kinds_of_spectrogram(session: Session) -> None:
    voice = session.run_phase(
        session.find("f5tts", "varied-dit"),
        "reference",
        {"reference": audio(**REFERENCE), "reference_text": "So."},
        {},
    )[0]
    inputs = {"text": TEXT, "voice": voice}
    (mel,) = session.run_phase(session.find("f5tts", "varied-dit"), "sample", inputs, {"nfe_step": 1})
    with pytest.raises(InputError, match="BigVGAN's"):
        session.run_phase(session.find("f5tts", "v1"), "vocoder", {"mel": mel}, {})


@pytest.mark.parametrize("steps", [1, 2, *PRUNED_OF_32, 32, 1000])
@pytest.mark.parametrize("sway", [-1.0, 0.0, 1.75])
def test_times_run_from_0_to_1_and_never_back(steps: int, sway: float) -> None:
    times = step_times(Sampling(nfe_step=steps, sway_sampling_coef=sway), torch.float64)
    assert len(times) == steps + 1
    assert times[0] == pytest.approx(0, abs=1e-12) and times[-1] == pytest.approx(1, abs=1e-12)
    assert bool((times.diff() > 0).all())


def test_noise_is_what_torch_gives_after_its_seed() -> None:
    batch = batch_of([torch.zeros(3, 5)], [[1, 2]], [7])
    with torch.random.fork_rng():
        torch.manual_seed(11)
        expected = torch.randn(7, 5), torch.randn(7, 5)
    rng = generator(11)
    for each in expected:
        assert torch.equal(draw_noise(batch, torch.float32, [rng])[0], each)


def test_a_row_is_longer_than_its_reference_and_its_tokens(modules: dict[str, Modules]) -> None:
    batch = batch_of([torch.zeros(9, 100), torch.zeros(3, 100)], [[1] * 4, [1] * 20], [5, 2])
    assert batch.frames.tolist() == [10, 21]
    assert batch.kept.sum(dim=1).tolist() == [9, 3]
    assert batch.ids.shape == (2, 20) and int(batch.ids[0, 4]) == -1


@pytest.mark.parametrize("model", ["v1", "e2"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_request_may_choose_its_dtype(root: Path, model: str, dtype: str) -> None:
    chosen, stored = (Session(resolve(given, {}), ModelLibrary([root])) for given in ({"compute.dtype": dtype}, {}))
    output, plain = speak(chosen, model), speak(stored, model)
    transformer = chosen.open(chosen.find("f5tts", model)).handles[0]
    assert {weight.dtype for weight in transformer.module.parameters()} == {getattr(torch, dtype)}
    assert (output.meta["applied"], plain.meta["applied"]) == ({"dtype": dtype}, {})
    assert output.audio.samples.shape == plain.audio.samples.shape
    assert torch.isfinite(output.audio.samples).all()


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        ("transformer:blocks.2.mlp.widen.weight", r"F5-TTS Sample: [\d,]+ of [\d,]+ values aren't finite"),
        ("vocoder:output_norm.weight", r"F5-TTS Vocoder: [\d,]+ of [\d,]+ samples aren't finite"),
    ],
)
def test_weights_that_are_no_numbers_are_noticed_in_their_phase(
    session: Session, weight: str, problem: str, value: float
) -> None:
    damage(session, session.find("f5tts", "v1"), weight, value)
    with pytest.raises(NotFinite, match=problem):
        speak(session)
