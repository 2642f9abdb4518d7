"""F5-TTS's nodes on a real server, with a tiny model of the official layout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy
import pytest

from devtools.client import ComfyClient, Event, ExecutionFailed
from tests.golden.f5tts.checkpoint import RECORDING, install
from tests.nodes import prompts
from tests.nodes.http_api import Api

pytestmark = pytest.mark.server

MODEL = "F5TTS_v1_Base"
TEXT = "We all went home again."
SPOKEN = "It was so, and so it is."


@pytest.fixture(scope="module", autouse=True)
def installed(base: Path) -> None:
    install(base)


def start() -> prompts.Prompt:
    return {
        "model": prompts.node("MizuotoF5TTSModel", model=MODEL),
        "recording": prompts.node("LoadAudio", audio=RECORDING),
    }


def phases(*, seed: int = 7, spoken: str = SPOKEN, **sampling: Any) -> prompts.Prompt:
    """Model and recording → Reference → Sample → Vocoder."""
    model = ["model", 0]
    return {
        **start(),
        "voice": prompts.node(
            "MizuotoF5TTSReference", model=model, reference=["recording", 0], reference_text=spoken
        ),
        "mel": prompts.node(
            "MizuotoF5TTSSample", model=model, text=TEXT, voice=["voice", 0], seed=seed, nfe_step=4, **sampling
        ),
        "audio": prompts.node("MizuotoF5TTSVocoder", model=model, mel=["mel", 0]),
        **prompts.outputs("audio"),
    }


def speak(**inputs: Any) -> prompts.Prompt:
    options = prompts.node("MizuotoF5TTSOptions", nfe_step=4, **inputs.pop("options", {}))
    speaking = {"model": ["model", 0], "text": TEXT, "seed": 7, "options": ["options", 0], **inputs}
    speak_node = prompts.node("MizuotoSpeak", **speaking)
    return {**start(), "options": options, "speak": speak_node, **prompts.outputs("speak")}


def test_speak_is_the_same_as_the_phases(client: ComfyClient) -> None:
    wired = client.run(phases())
    spoken = client.run(speak(reference=["recording", 0], reference_text=SPOKEN))
    assert [phase["phase"] for phase in prompts.report(wired)["phases"]] == ["reference", "sample", "vocoder"]
    audio, rate_hz = prompts.samples(client, spoken)
    assert rate_hz == 24_000 and audio.shape[1] > 24_000
    assert numpy.abs(audio).max() > 0.01
    assert numpy.array_equal(audio, prompts.samples(client, wired)[0])


def test_another_number_of_steps_prepares_no_reference_again(client: ComfyClient) -> None:
    client.run(phases(seed=8))
    events: list[Event] = []
    client.run(phases(seed=8, cfg_strength=1.0), events.append)
    assert {"mel", "audio"} <= set(prompts.ran(events))
    assert {"voice", "recording"} <= prompts.cached(events)


def ran_again(client: ComfyClient) -> set[str]:
    events: list[Event] = []
    client.run(phases(seed=9), events.append)
    return set(prompts.ran(events)) - {"save", "report"}


def test_another_dtype_and_another_vocoder_are_heard_though_the_prompt_is_the_same(
    client: ComfyClient, base: Path
) -> None:
    api, vocoder = Api(client.url), base / "models" / "mizuoto" / "f5tts" / "vocos" / "config.yaml"
    client.run(phases(seed=9))
    assert not ran_again(client)
    try:
        api.send("PATCH", "/settings", {"compute.dtype": "bfloat16"})
        assert {"mel", "audio"} <= ran_again(client) and not ran_again(client)
    finally:
        api.send("PATCH", "/settings", {"compute.dtype": None})
    client.run(phases(seed=9))
    os.utime(vocoder)
    assert {"mel", "audio"} <= ran_again(client) and not ran_again(client)


def test_a_recording_is_edited(client: ComfyClient) -> None:
    entry = client.run(speak(recording=["recording", 0], options={"parts_to_edit": "0.5-1.0", "part_durations": "1.5"}))
    report = prompts.report(entry)
    assert [phase["phase"] for phase in report["phases"]] == ["edit", "vocoder"]
    assert report["length_samples"] == pytest.approx(2.5 * 24_000, abs=600)


def test_a_missing_transcript_is_said(client: ComfyClient) -> None:
    with pytest.raises(ExecutionFailed, match="the reference's text is missing"):
        client.run(phases(spoken=""))
