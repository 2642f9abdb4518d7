"""OmniVoice's nodes on a real server, with a tiny model of the official layout."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from devtools.client import ComfyClient, Event, ExecutionFailed
from tests.golden.omnivoice.checkpoint import MODEL, RECORDING
from tests.nodes import prompts

pytestmark = pytest.mark.server

TEXT = "We all [sigh] went home again."
SPOKEN = "It was so, and so it is."


def start() -> prompts.Prompt:
    return {
        "model": prompts.node("MizuotoOmniVoiceModel", model=MODEL),
        "recording": prompts.node("LoadAudio", audio=RECORDING),
    }


def phases(*, seed: int = 7, spoken: str = SPOKEN, trim: bool = True, **how: Any) -> prompts.Prompt:
    """Model and recording → Voice → Generate → Decode."""
    model = ["model", 0]
    voice = {"model": model, "reference": ["recording", 0], "reference_text": spoken}
    made = {"model": model, "text": TEXT, "voice": ["voice", 0], "seed": seed, "num_step": 4, **how}
    return {
        **start(),
        "voice": prompts.node("MizuotoOmniVoiceVoice", **voice),
        "codes": prompts.node("MizuotoOmniVoiceGenerate", **made),
        "audio": prompts.node("MizuotoOmniVoiceDecode", model=model, codes=["codes", 0], postprocess_output=trim),
        **prompts.outputs("audio"),
    }


def speak(*, options: dict[str, Any] | None = None, **inputs: Any) -> prompts.Prompt:
    chosen = prompts.node("MizuotoOmniVoiceOptions", num_step=4, **(options or {}))
    speaking = {"model": ["model", 0], "text": TEXT, "seed": 7, "options": ["options", 0], **inputs}
    return {
        **start(),
        "options": chosen,
        "speak": prompts.node("MizuotoSpeak", **speaking),
        **prompts.outputs("speak"),
    }


def test_speak_is_the_same_as_the_phases(client: ComfyClient) -> None:
    wired = client.run(phases())
    spoken = client.run(speak(reference=["recording", 0], reference_text=SPOKEN))
    assert [phase["phase"] for phase in prompts.report(wired)["phases"]] == ["voice", "generate", "decode"]
    audio, rate_hz = prompts.samples(client, spoken)
    assert rate_hz == 24_000 and audio.shape[1] > 24_000
    assert numpy.abs(audio).max() > 0.01
    assert numpy.array_equal(audio, prompts.samples(client, wired)[0])


def test_other_decoding_generates_no_codes_again(client: ComfyClient) -> None:
    client.run(phases(seed=8))
    events: list[Event] = []
    client.run(phases(seed=8, trim=False), events.append)
    assert "audio" in prompts.ran(events)
    assert {"voice", "codes", "recording"} <= prompts.cached(events)


def test_speak_designs_a_voice(client: ComfyClient) -> None:
    entry = client.run(speak(options={"instruct": "女, low pitch", "language": "Mandarin"}))
    report = prompts.report(entry)
    assert [phase["phase"] for phase in report["phases"]] == ["designed_voice", "generate", "decode"]
    assert "unknown language 'Mandarin'" in str(report)


def test_what_is_wrong_is_said(client: ComfyClient) -> None:
    with pytest.raises(ExecutionFailed, match="the reference's text is missing"):
        client.run(phases(spoken=""))
    with pytest.raises(ExecutionFailed, match=r"'femal' \(did you mean 'female'\?\)"):
        client.run(speak(options={"instruct": "femal"}))
