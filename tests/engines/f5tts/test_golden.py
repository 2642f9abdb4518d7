"""What upstream gave for tiny checkpoints of every kind: mel spectrograms, tokens, durations and waves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.engines.f5tts.durations import plan_frames, sampled_frames
from mizuoto_runtime.engines.f5tts.edit import cut, plan_edit
from mizuoto_runtime.engines.f5tts.mel import log_mel
from mizuoto_runtime.engines.f5tts.phases import Mel, Voice
from mizuoto_runtime.engines.f5tts.reference import Reference, prepare_whole
from mizuoto_runtime.engines.f5tts.sampler import Batch, Sampling, Solver, batch_of, draw_noise
from mizuoto_runtime.engines.f5tts.text import space_reference_text, to_tokens
from mizuoto_runtime.engines.f5tts.weights import Modules
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.types import Artifact, Audio
from tests.engines.f5tts.conftest import GOLDEN, MEL_TOLERANCE, WAVE_TOLERANCE, arrays, audio
from tests.golden.f5tts.cases import REQUESTS, SAMPLES, SPEECH, STRIDE
from tests.golden.f5tts.checkpoint import sound


def batch(modules: Modules, case: dict[str, Any]) -> tuple[Batch, list[Tensor], bool]:
    """The case's batch, its references, and whether it is an edit."""
    kind = modules.architecture.mel_spec_type
    mels = [log_mel(sound(**row["sound"])[0], kind) for row in case["rows"]]
    kept = None
    if "edit" in case:
        mel, kept = cut(mels[0], plan_edit(len(mels[0]), case["edit"]["parts"], case["edit"]["durations"]))
        mels, kept = [mel], kept[None]
    ids = [modules.vocabulary.to_ids(row["tokens"]) for row in case["rows"]]
    return batch_of(mels, ids, [row["duration"] for row in case["rows"]], kept), mels, kept is not None


def sampling(case: dict[str, Any]) -> Sampling:
    return Sampling(
        nfe_step=case["steps"],
        cfg_strength=case["cfg_strength"],
        sway_sampling_coef=case["sway_sampling_coef"],
        ode_method=case.get("method", "euler"),
    )


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_a_mel_spectrogram_is_upstreams(modules: dict[str, Modules], number: int) -> None:
    case, recorded = SAMPLES[number], GOLDEN["samples"][number]
    model = modules[case["model"]]
    given, mels, edited = batch(model, case)
    assert given.reference.shape[1] == recorded["longest"]
    noise = draw_noise(given, model.network.dtype, [generator(case["seed"]) for _ in mels])
    made = Solver(model.network, given, sampling(case), noise).run("cpu")
    parts = list(made) if edited else [mel[len(own) :] for mel, own in zip(made, mels, strict=True)]
    assert [len(part) for part in parts] == recorded["frames"]
    expected = arrays()[f"sample{number}.mel"]
    assert expected.abs().max() > 10
    assert (torch.cat(parts) - expected).abs().max() <= MEL_TOLERANCE


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_a_references_mel_spectrogram_is_upstreams(modules: dict[str, Modules], number: int) -> None:
    case = SAMPLES[number]
    _, mels, edited = batch(modules[case["model"]], case)
    expected = arrays()[f"sample{number}.reference"]
    assert (mels[0][: len(expected)] - expected).abs().max() <= 1e-5
    assert edited is ("edit" in case)


def prepared(case: dict[str, Any]) -> Reference:
    """As upstream's `infer_batch_process` gets it, whose input had its silences cut before."""
    given = audio(**case["sound"])
    return prepare_whole(given.samples, given.rate_hz)


def test_tokens_and_durations_are_upstreams() -> None:
    for case, recorded in zip(SPEECH, GOLDEN["speech"], strict=True):
        reference, before = prepared(case), space_reference_text(case["reference_text"])
        options = case["options"]
        planned = plan_frames(
            case["chunks"],
            reference.frames,
            before,
            speed=options.get("speed", 1.0),
            fix_duration=options.get("fix_duration"),
            cross_fade_seconds=options.get("cross_fade_duration", 0.15),
        )
        tokens = [to_tokens(before + chunk) for chunk in case["chunks"]]
        assert tokens == [chunk["tokens"] for chunk in recorded["chunks"]]
        sampled = [
            sampled_frames(frames, len(own), reference.frames + 1) for frames, own in zip(planned, tokens, strict=True)
        ]
        assert sampled == [chunk["frames"] for chunk in recorded["chunks"]]


@pytest.mark.parametrize("number", range(len(SPEECH)))
def test_speech_is_upstreams(session: Session, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole phases. The text is cut as the recording says, since upstream's cutting looks at the reference's file."""
    case = SPEECH[number]
    monkeypatch.setattr("mizuoto_runtime.engines.f5tts.phases.chunk_text", lambda text, most: case["chunks"])
    files = session.find("f5tts", case["model"])
    voice = Artifact("MIZUOTO_F5TTS_VOICE", Voice(prepared(case), case["reference_text"]))
    inputs = {"text": " ".join(case["chunks"]), "voice": voice}
    (mel,) = session.run_phase(files, "sample", inputs, case["options"], seed=case["seed"])
    assert isinstance(mel.value, Mel)
    expected = arrays()[f"speech{number}.mel"]
    assert (torch.cat(mel.value.pieces) - expected).abs().max() <= MEL_TOLERANCE
    (made,) = session.run_phase(files, "vocoder", {"mel": mel}, {})
    assert isinstance(made.value, Audio)
    wave = arrays()[f"speech{number}.wave"]
    assert wave.abs().max() > 0.1
    assert made.value.samples.shape == (1, len(wave))
    assert (made.value.samples[0] - wave).abs().max() <= WAVE_TOLERANCE


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_a_request_is_upstreams_from_the_recording_to_the_sound(session: Session, number: int) -> None:
    case, recorded = REQUESTS[number], GOLDEN["requests"][number]
    inputs = {"reference": audio(**case["sound"]), "reference_text": case["reference_text"]}
    request = SpeakRequest(text=case["text"], seed=case["seed"], inputs=inputs, options=case["options"])
    samples = session.speak(session.find("f5tts", case["model"]), request).audio.samples
    wave = arrays()[f"request{number}.wave"]
    assert wave.abs().max() > 0.1
    assert samples.shape == (1, recorded["length"])
    assert (samples[0, ::STRIDE] - wave).abs().max() <= WAVE_TOLERANCE
