"""Requests as people make them: options, seeds, voices, chunks, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mizuoto_runtime.engines.omnivoice import phases
from mizuoto_runtime.engines.omnivoice.speech import Codes, Voice
from mizuoto_runtime.errors import InputError, NotFinite
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Artifact, Audio, Callbacks, Output, Progress
from tests.engines.damage import WRONG, damage
from tests.golden.omnivoice.checkpoint import reference_sound, write_checkpoint

REFERENCE = Audio(reference_sound(14_400, 4), 24_000)
SAID = "The lazy dog."


def speak(session: Session, text: str = "Hi.", *, seed: int = 1, **options: object) -> Output:
    inputs = {name: options.pop(name) for name in ("reference", "reference_text", "voice") if name in options}
    options = {"num_step": 2} | options
    request = SpeakRequest(text=text, seed=seed, inputs=inputs, options=options)
    return session.speak(session.find("omnivoice", "small"), request)


def voice_of(session: Session, **inputs: object) -> Artifact:
    return session.run_phase(session.find("omnivoice", "small"), "voice", {"reference": REFERENCE, **inputs}, {})[0]


def warnings(output: Output) -> list[str]:
    found = output.meta["warnings"]
    assert isinstance(found, list)
    return found


def test_a_seed_is_a_speech(session: Session) -> None:
    once, again, other = (speak(session, seed=seed).audio.samples for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert once.shape != other.shape or not torch.equal(once, other)


def test_without_chance_the_seed_doesnt_matter(session: Session) -> None:
    made = [speak(session, seed=seed, position_temperature=0.0).audio.samples for seed in (1, 2)]
    assert torch.equal(*made)


def test_each_option_has_an_effect(session: Session) -> None:
    plain = speak(session, "Hello there.").audio.samples
    for option, value in (
        ("language", "en"),
        ("speed", 2.0),
        ("duration", 0.3),
        ("guidance_scale", 0.0),
        ("t_shift", 1.0),
        ("layer_penalty_factor", 0.0),
        ("position_temperature", 0.0),
        ("class_temperature", 1.0),
        ("instruct", "whisper"),
        ("postprocess_output", False),
        ("pad_duration", 0.5),
        ("fade_duration", 0.0),
    ):
        other = speak(session, "Hello there.", **{option: value}).audio.samples
        assert other.shape != plain.shape or not torch.equal(other, plain), option


def test_a_duration_is_kept(session: Session) -> None:
    output = speak(session, "Hello there, how are you?", duration=1.2, speed=3.0, postprocess_output=False)
    assert output.audio.samples.shape == (1, 30 * 960 + 2 * 2_400)


def test_an_unknown_language_is_a_warning(session: Session) -> None:
    output = speak(session, language="Englisch")
    assert any("unknown language 'Englisch'" in warning for warning in warnings(output))
    assert torch.equal(output.audio.samples, speak(session).audio.samples)
    assert not warnings(speak(session, language="none"))


def test_a_voice_is_made_once_and_spoken_with(session: Session) -> None:
    voice = voice_of(session, reference_text=SAID)
    assert isinstance(voice.value, Voice)
    assert voice.value.codes is not None and voice.value.codes.device.type == "cpu"
    direct = speak(session, reference=REFERENCE, reference_text=SAID)
    assert torch.equal(speak(session, voice=voice).audio.samples, direct.audio.samples)


def test_a_batch_of_recordings_gives_the_voice_of_its_first(session: Session) -> None:
    batch = Audio(torch.stack([torch.zeros(1, 14_400), REFERENCE.samples]), 24_000)
    chosen = session.run_phase(
        session.find("omnivoice", "small"), "voice", {"reference": batch, "reference_text": SAID}, {}
    )[0]
    alone = voice_of(session, reference_text=SAID)
    assert isinstance(chosen.value, Voice) and isinstance(alone.value, Voice)
    assert chosen.value.codes is not None and alone.value.codes is not None
    assert torch.equal(chosen.value.codes, alone.value.codes)
    assert any("a batch of 2; number 2" in warning for warning in chosen.reports[-1].warnings)


def test_a_short_recording_is_a_warning(session: Session) -> None:
    for seconds, warned in ((0.4, True), (1.5, False)):
        sound = Audio(reference_sound(int(24_000 * seconds), 4), 24_000)
        output = speak(session, reference=sound, reference_text=SAID)
        assert any("s of sound; 3 to 10 s are best" in warning for warning in warnings(output)) is warned


@pytest.mark.parametrize("chunk", [0.5, 3.0])
def test_a_long_text_is_spoken_in_chunks(session: Session, chunk: float) -> None:
    text = "How are you? Hello there. The lazy dog. The quick brown fox, over and over."
    (codes,) = session.run_phase(
        session.find("omnivoice", "small"),
        "generate",
        {"text": text},
        {"num_step": 1, "audio_chunk_threshold": 1.0, "audio_chunk_duration": chunk},
        3,
    )
    assert isinstance(codes.value, Codes)
    assert len(codes.value.chunks) > 1
    assert all((each < 64).all() and each.shape[0] == 8 for each in codes.value.chunks)


def test_speech_under_the_threshold_of_silence_is_left_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "_decoded", lambda ctx, model, codes: torch.full((1, 24_000), 1e-4))
    output = speak(session)
    assert any("quieter than -50 dB" in warning for warning in warnings(output))
    assert output.audio.samples.shape == (1, 24_000 + 2 * 2_400)
    assert output.audio.samples.abs().max() == pytest.approx(0.5)


def test_the_computation_dtype_is_the_networks(library: ModelLibrary) -> None:
    session = Session(resolve({"compute.dtype": "bfloat16"}, {}), library)
    output = speak(session)
    handles = {handle.name: handle for handle in session.open(session.find("omnivoice", "small")).handles}
    dtypes = {name: next(handle.module.parameters()).dtype for name, handle in handles.items()}
    assert dtypes == {"model": torch.bfloat16, "codec_encoder": torch.float32, "codec_decoder": torch.float32}
    assert output.meta["applied"] == {"dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"reference": REFERENCE}, "the reference's text is missing"),
        ({"reference": REFERENCE, "reference_text": " "}, "the reference's text is missing"),
        ({"reference": Audio(torch.zeros(1, 9_600), 24_000), "reference_text": SAID}, "the reference is silent"),
        ({"instruct": "femal"}, r"'femal' \(did you mean 'female'\?\)"),
        ({"num_step": 0}, "from 1 to 1000"),
        ({"speed": 0.0}, "from 0.1 to 10"),
        ({"duration": -1.0}, "from 0.01 to 3600"),
        ({"steps": 3}, "unknown option"),
    ],
)
def test_what_is_wrong_is_said(session: Session, options: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        speak(session, **options)


def test_a_text_of_nothing_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match="the text is empty"):
        speak(session, "  ")


def test_more_than_an_hour_at_once_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match="at once"):
        speak(session, "word " * 40_000, speed=0.1, audio_chunk_threshold=3600.0, audio_chunk_duration=600.0)


@pytest.mark.parametrize("voice", [{}, {"reference": REFERENCE, "reference_text": SAID}])
def test_a_late_chunk_that_is_too_long_is_refused_before_any_is_spoken(
    session: Session, voice: dict[str, object]
) -> None:
    told: list[Progress] = []
    inputs: dict[str, object] = {"text": "How are you? Hello there. " + "word " * 40_000}
    if voice:
        inputs["voice"] = session.run_phase(session.find("omnivoice", "small"), "voice", voice, {})[0]
    options = {"num_step": 1, "speed": 0.1, "audio_chunk_threshold": 1.0, "audio_chunk_duration": 0.5}
    with pytest.raises(InputError, match="at once"):
        session.run_phase(
            session.find("omnivoice", "small"), "generate", inputs, options, callbacks=Callbacks(told.append)
        )
    assert not told


def test_a_voice_of_another_model_is_refused(session: Session) -> None:
    voice = Artifact("MIZUOTO_OMNIVOICE_VOICE", Voice(torch.zeros(4, 9, dtype=torch.long), SAID, 0.1))
    with pytest.raises(InputError, match="the voice has 4 codebooks, this model 8"):
        speak(session, voice=voice)


def test_a_prompt_longer_than_the_model_was_made_for_is_a_warning(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "omnivoice" / "small", "small")
    path = folder / "config.json"
    path.write_text(path.read_text(encoding="utf-8").replace("40960", "40"), encoding="utf-8")
    session = Session(resolve(environment={}), ModelLibrary([tmp_path]))
    assert any("the model was made for 40" in warning for warning in warnings(speak(session, "Hello there.")))


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        ("model:llm.layers.0.self_attn.q_proj.weight", "the logits of codes aren't finite"),
        ("model:llm.norm.weight", "the logits of codes aren't finite"),
        ("model:audio_heads.weight", "the logits of codes aren't finite"),
        ("codec_encoder:joint.weight", "the encoded reference's distances from codes aren't finite"),
        ("codec_encoder:quantizers.7.input.weight", "the encoded reference's distances from codes aren't finite"),
        ("codec_encoder:quantizers.7.vectors.weight", "the encoded reference's distances from codes aren't finite"),
        ("codec_decoder:joint.bias", "the decoded samples aren't finite numbers.* compute.dtype to float32"),
    ],
)
def test_weights_that_are_no_numbers_give_no_speech(
    session: Session, weight: str, problem: str, value: float
) -> None:
    """Choosing codes would hide them, and so would rounding samples to 16 bits."""
    damage(session, session.find("omnivoice", "small"), weight, value)
    with pytest.raises(NotFinite, match=problem):
        speak(session, reference=REFERENCE, reference_text=SAID)
