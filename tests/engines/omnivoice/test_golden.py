"""Every kind of request against upstream: prompts, durations and codes equal, waveforms within the tolerance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mizuoto_runtime.engines.omnivoice import phases, speech
from mizuoto_runtime.engines.omnivoice.instruct import parse_instruct
from mizuoto_runtime.engines.omnivoice.languages import language_id
from mizuoto_runtime.engines.omnivoice.speech import Codes, Said, Speaker, Speech, Voice
from mizuoto_runtime.engines.omnivoice.unmask import Prompt, Unmasker, Unmasking
from mizuoto_runtime.engines.omnivoice.weights import Modules, load_modules
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.types import Audio
from tests.engines.omnivoice.models import CASES, GOLDEN, SINGLE, TOLERANCE, Recorded, recorded
from tests.golden.omnivoice.cases import WAVE_STRIDE

FRAME_RATE_HZ = 25
UNMASKING = {
    "num_step",
    "guidance_scale",
    "t_shift",
    "layer_penalty_factor",
    "position_temperature",
    "class_temperature",
}
DECODING = {"postprocess_output", "pad_duration", "fade_duration"}


@pytest.fixture(scope="module")
def opened(root: Path) -> dict[str, Modules]:
    return {path.name: load_modules(path) for path in (root / "omnivoice").iterdir()}


def speech_of(row: Recorded) -> Speech:
    """As the phases make it, but with the voice as it was recorded."""
    given, options = row.given, row.options
    voice = row.voice or {"text": "", "rms": None}
    attributes = parse_instruct(given.get("instruct") or "")
    return Speech(
        text=given["text"],
        voice=Voice(row.reference, voice["text"], voice["rms"], attributes),
        language=language_id(given.get("language") or "")[0],
        speed=given.get("speed") or 1.0,
        duration=given.get("duration"),
        denoise=options.get("denoise", True),
        chunk_seconds=options.get("audio_chunk_duration", 15.0),
        threshold_seconds=options.get("audio_chunk_threshold", 30.0),
        how=Unmasking(**{name: value for name, value in options.items() if name in UNMASKING}),
    )


def prompts_of(loaded: Modules, row: Recorded) -> list[Prompt]:
    """Of each chunk; what follows the first chunk follows the recorded one."""
    speaker, wanted = Speaker(loaded.config, loaded.tokenizer, FRAME_RATE_HZ), speech_of(row)
    plan = speaker.plan(wanted)
    said, prompts = Said(wanted.voice.codes, wanted.voice.text), []
    for text, frames in zip(plan.chunks, plan.frames, strict=True):
        prompts.append(speaker.prompt(wanted, text, said, frames))
        if said.codes is None:
            said = Said(row.codes[0], text)
    return prompts


@pytest.mark.parametrize("number", CASES)
def test_ids_and_durations_are_upstreams(opened: dict[str, Modules], number: int) -> None:
    for row in recorded(number):
        prompts = prompts_of(opened[row.model], row)
        assert [list(prompt.ids) for prompt in prompts] == row.prompts
        assert [prompt.frames for prompt in prompts] == row.frames


@pytest.mark.parametrize("number", [number for number in CASES if number not in SINGLE])
def test_the_codes_of_a_batch_are_upstreams(opened: dict[str, Modules], number: int) -> None:
    rows = recorded(number)
    loaded = opened[rows[0].model]
    prompts = [prompt for row in rows for prompt in prompts_of(loaded, row)]
    made = Unmasker(loaded.network, prompts, speech_of(rows[0]).how, generator(rows[0].seed)).run("cpu")
    for codes, row in zip(made, rows, strict=True):
        assert torch.equal(codes, row.codes[0])


@pytest.mark.parametrize("number", SINGLE)
def test_a_request_gives_upstreams_codes_and_waveform(
    session: Session, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (row,) = recorded(number)
    made: list[Codes] = []
    voices: list[Voice] = []
    decode, plan = phases.decode, speech.Speaker.plan

    def noted(*args: Any, codes: Codes, **more: Any) -> Audio:
        made.append(codes)
        return decode(*args, codes=codes, **more)

    def planned(self: Speaker, speech: Speech) -> Any:
        voices.append(speech.voice)
        return plan(self, speech)

    monkeypatch.setattr(phases, "decode", noted)
    monkeypatch.setattr(speech.Speaker, "plan", planned)
    output = session.speak(session.find("omnivoice", row.model), request(row))
    if row.reference is not None and row.voice is not None:
        assert torch.equal(voices[0].codes, row.reference)
        assert voices[0].text == row.voice["text"]
        assert voices[0].rms == pytest.approx(row.voice["rms"], rel=1e-6)
    assert len(made[0].chunks) == len(row.codes)
    assert all(torch.equal(chunk, codes) for chunk, codes in zip(made[0].chunks, row.codes, strict=True))
    assert output.audio.rate_hz == 24_000
    assert output.audio.samples.shape == (1, row.length)
    if row.wave is not None:
        assert row.wave.std() > 0.01
        assert (output.audio.samples[0, ::WAVE_STRIDE] - row.wave).abs().max() <= TOLERANCE


def request(row: Recorded) -> SpeakRequest:
    """The recorded call, as a request of this pack."""
    given = row.given
    options: dict[str, object] = dict(row.options)
    options |= {name: given[name] for name in ("language", "instruct", "speed", "duration") if name in given}
    inputs: dict[str, object] = {}
    if row.sound is not None:
        inputs = {"reference": row.sound, "reference_text": given["ref_text"]}
    return SpeakRequest(text=given["text"], seed=row.seed, inputs=inputs, options=options)


def test_what_was_recorded_covers_both_ends_of_each_option() -> None:
    options = [case["options"] for case in GOLDEN["cases"]]
    steps = {each.get("num_step", 32) for each in options}
    assert {1, 32} <= steps
    assert {each.get("guidance_scale", 2.0) for each in options} >= {0.0, 2.0}
    assert any(len(case["frames"][0]) > 1 and case["voices"] for case in GOLDEN["cases"])
    assert any(len(case["frames"][0]) > 1 and not case["voices"] for case in GOLDEN["cases"])
