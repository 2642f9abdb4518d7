"""Qwen3-TTS's saved voices on a real server, with a tiny model of the official layout."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy
import pytest

from devtools.client import ComfyClient, Event, ExecutionFailed
from tests.golden.qwen3tts.placed import REFERENCE
from tests.nodes import prompts

pytestmark = pytest.mark.server

MODEL = "Qwen3-TTS-12Hz-0.6B-Base"
FILES = (".json", ".safetensors")


def speak(source: str, **made: prompts.Prompt) -> prompts.Prompt:
    """Model and the node `source`, which gives a voice → Talker → Decode."""
    model = ["model", 0]
    return {
        "model": prompts.node("MizuotoQwen3TTSModel", model=MODEL),
        **made,
        "codes": prompts.node(
            "MizuotoQwen3TTSTalker", model=model, text="Hello again.", voice=[source, 0], seed=7, max_new_tokens=8
        ),
        "audio": prompts.node("MizuotoQwen3TTSDecode", model=model, codes=["codes", 0]),
        **prompts.outputs("audio"),
    }


def saving(name: str, *, text: str) -> prompts.Prompt:
    """text: what is said in the reference; "" for its speaker alone."""
    model = ["model", 0]
    taken = prompts.node("MizuotoQwen3TTSVoiceFromAudio", model=model, reference=["wav", 0], reference_text=text)
    saved = prompts.node("MizuotoQwen3TTSSaveVoice", model=model, voice=["taken", 0], save_voice_as=name)
    return speak("saved", wav=prompts.node("LoadAudio", audio=REFERENCE), taken=taken, saved=saved)


def loading(name: str) -> prompts.Prompt:
    return speak("voice", voice=prompts.node("MizuotoQwen3TTSLoadVoice", model=["model", 0], voice_file=name))


def test_a_saved_voice_that_was_replaced_or_removed_is_loaded_again(client: ComfyClient, base: Path) -> None:
    folder = base / "models" / "mizuoto" / "qwen3tts" / "voices"
    said = {name: client.run(saving(name, text=text)) for name, text in (("first", ""), ("second", "So it was."))}
    audio = {name: prompts.samples(client, entry)[0] for name, entry in said.items()}
    assert numpy.array_equal(prompts.samples(client, client.run(loading("first")))[0], audio["first"])
    events: list[Event] = []
    client.run(loading("first"), events.append)
    assert prompts.ran(events) == []
    for suffix in FILES:
        shutil.copy(folder / f"second{suffix}", folder / f"first{suffix}")
    assert numpy.array_equal(prompts.samples(client, client.run(loading("first")))[0], audio["second"])
    for suffix in FILES:
        (folder / f"first{suffix}").unlink()
    with pytest.raises(ExecutionFailed, match="unknown voice 'first'"):
        client.run(loading("first"))


@pytest.mark.parametrize("name", ["../first", "/etc/passwd", "x" * 5_000, "{model}", "a\x00b"])
def test_a_voices_name_leads_nowhere_else(client: ComfyClient, name: str) -> None:
    with pytest.raises(ExecutionFailed) as caught:
        client.run(loading(name))
    assert prompts.PACK_ERROR in caught.value.details["exception_type"]
