"""Prompts in API format for the tests on a real server, and what their runs gave."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import av
import numpy

from devtools.client import ComfyClient, Event
from devtools.workflow import output_files, output_texts

Prompt = dict[str, Any]
VOICE = "en_US-joe-medium"
PACK_ERROR = ".mizuoto_runtime.errors."


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def outputs(source: str) -> Prompt:
    """Saves the audio and shows the report of node `source`."""
    return {
        "save": node("SaveAudio", audio=[source, 0], filename_prefix="test"),
        "report": node("PreviewAny", source=[source, 1]),
    }


def speak(engine: str, text: str, *, model: Any = None, seed: Any = 7, options: dict[str, Any] | None = None) -> Prompt:
    """Model → Speak. engine: "Piper" or "Dummy"."""
    chosen = model if model is not None else {"Piper": VOICE, "Dummy": "tones"}[engine]
    prompt = {
        "model": node(f"Mizuoto{engine}Model", model=chosen),
        "speak": node("MizuotoSpeak", model=["model", 0], text=text, seed=seed),
        **outputs("speak"),
    }
    if options is not None:
        prompt["options"] = node(f"Mizuoto{engine}Options", **options)
        prompt["speak"]["inputs"]["options"] = ["options", 0]
    return prompt


def phases(text: str, *, seed: int = 7, encode: Prompt | None = None, decode: Prompt | None = None) -> Prompt:
    """Piper Model → Encode → Decode."""
    return {
        "model": node("MizuotoPiperModel", model=VOICE),
        "encode": node("MizuotoPiperEncode", model=["model", 0], text=text, seed=seed, **(encode or {})),
        "decode": node("MizuotoPiperDecode", model=["model", 0], encoding=["encode", 0], seed=seed, **(decode or {})),
        **outputs("decode"),
    }


def report(entry: Prompt) -> dict[str, Any]:
    (text,) = output_texts(entry)
    return dict(json.loads(text))


def samples(client: ComfyClient, entry: Prompt) -> tuple[numpy.ndarray, int]:
    """The saved audio: (channels, length) within -1 … 1, and its rate in Hz."""
    (file,) = output_files(entry)
    with av.open(io.BytesIO(client.view(file))) as container:
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
        rate_hz = container.streams.audio[0].rate
    audio = numpy.concatenate(frames, axis=1)
    assert audio.dtype == numpy.int16
    return audio / 2**15, rate_hz


def ran(events: Iterable[Event]) -> list[str]:
    """Ids of the nodes that ran, those inside an expansion by their last part."""
    nodes = [event.data["node"] for event in events if event.type == "executing" and event.data.get("node")]
    return [str(name).split(".")[-1] for name in nodes]


def cached(events: Iterable[Event]) -> set[str]:
    return {str(name) for event in events if event.type == "execution_cached" for name in event.data["nodes"]}


def steps(events: Iterable[Event], phase: str) -> list[tuple[int, int]]:
    """The progress messages of a phase: (value, max)."""
    found = [event.data for event in events if event.type == "progress" and str(event.data["node"]).endswith(phase)]
    return [(data["value"], data["max"]) for data in found]


def free(client: ComfyClient) -> None:
    """Unload and forget for certain: ComfyUI's worker may sleep through the request until another prompt wakes it."""
    client.free()
    client.run({"wake": node("PreviewAny", source="")})
