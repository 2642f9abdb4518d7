"""VoxCPM's nodes on a real server, with a tiny model of the official layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

from devtools.client import ComfyClient, Event, ExecutionFailed
from tests.golden.voxcpm.checkpoint import PROMPT, install
from tests.nodes import prompts

pytestmark = pytest.mark.server

MODEL = "VoxCPM2"
TEXT = "We all went home again."
PATCHES = 9
SAMPLES = PATCHES * 4 * 1920


@pytest.fixture(scope="module", autouse=True)
def installed(base: Path) -> None:
    install(base)


def start() -> prompts.Prompt:
    return {
        "model": prompts.node("MizuotoVoxCPMModel", model=MODEL),
        "recording": prompts.node("LoadAudio", audio=PROMPT),
    }


def phases(*, seed: int = 7, voice: dict[str, Any] | None = None, **sampling: Any) -> prompts.Prompt:
    """Model and recording → Voice → Generate → Decode."""
    model = ["model", 0]
    given = voice or {"reference": ["recording", 0]}
    how = {"max_len": PATCHES, "inference_timesteps": 4, "retry_badcase": False, **sampling}
    return {
        **start(),
        "voice": prompts.node("MizuotoVoxCPMVoice", model=model, **given),
        "latents": prompts.node("MizuotoVoxCPMGenerate", model=model, text=TEXT, voice=["voice", 0], seed=seed, **how),
        "audio": prompts.node("MizuotoVoxCPMDecode", model=model, latents=["latents", 0]),
        **prompts.outputs("audio"),
    }


def speak(**inputs: Any) -> prompts.Prompt:
    how = {"max_len": PATCHES, "inference_timesteps": 4, "retry_badcase": False, **inputs.pop("options", {})}
    options = prompts.node("MizuotoVoxCPMOptions", **how)
    speaking = {"model": ["model", 0], "text": TEXT, "seed": 7, "options": ["options", 0], **inputs}
    speak_node = prompts.node("MizuotoSpeak", **speaking)
    return {**start(), "options": options, "speak": speak_node, **prompts.outputs("speak")}


def test_speak_is_the_same_as_the_phases(client: ComfyClient) -> None:
    wired = client.run(phases())
    spoken = client.run(speak(reference=["recording", 0]))
    assert [phase["phase"] for phase in prompts.report(wired)["phases"]] == ["voice", "generate", "decode"]
    audio, rate_hz = prompts.samples(client, spoken)
    assert rate_hz == 48_000 and audio.shape[1] == SAMPLES
    assert numpy.abs(audio).max() > 0.01
    assert numpy.array_equal(audio, prompts.samples(client, wired)[0])


def test_a_prompt_may_stand_beside_a_reference_and_without_either_a_voice_is_made_up(client: ComfyClient) -> None:
    both = client.run(speak(reference=["recording", 0], prompt=["recording", 0], prompt_text="So it was."))
    assert [phase["phase"] for phase in prompts.report(both)["phases"]] == ["voice", "generate", "decode"]
    described = client.run(speak(options={"control": "a calm voice"}))
    assert [phase["phase"] for phase in prompts.report(described)["phases"]] == ["generate", "decode"]
    for entry in (both, described):
        assert prompts.samples(client, entry)[0].shape[1] == SAMPLES


def test_another_guidance_takes_no_voice_again(client: ComfyClient) -> None:
    client.run(phases(seed=8))
    events: list[Event] = []
    client.run(phases(seed=8, cfg_value=1.0), events.append)
    assert {"latents", "audio"} <= set(prompts.ran(events))
    assert {"voice", "recording"} <= prompts.cached(events)


def test_a_prompt_without_its_text_is_said(client: ComfyClient) -> None:
    with pytest.raises(ExecutionFailed, match="a prompt is a recording and its text"):
        client.run(phases(voice={"prompt": ["recording", 0]}))
