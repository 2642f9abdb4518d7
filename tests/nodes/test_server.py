"""The nodes on a real server: what they list, run, cache and say."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy
import pytest

from devtools.client import ComfyClient, Event, PromptRejected
from devtools.comfyui import ComfyServer
from tests.nodes import prompts

pytestmark = pytest.mark.server

SHORT = "Hello there. How are you?"
NAMES_PACK = re.compile(r"custom_nodes.mizuoto|mizuoto_runtime|Mizuoto[A-Z]")
IMPORT_TIME = re.compile(r".*\s\d+\.\d+ seconds: \S+")


def test_every_node_is_listed_with_its_texts(client: ComfyClient, pack_module: Callable[[str], ModuleType]) -> None:
    nodes = {name: info for name, info in client.object_info().items() if name.startswith("Mizuoto")}
    specs = pack_module("mizuoto_runtime.engines.registry").all_engines()
    assert set(nodes) == {node.id for node in pack_module("nodes.declare").node_declarations(specs)}
    for name, info in nodes.items():
        assert info["category"].startswith("audio/mizuoto")
        assert info["python_module"] == "custom_nodes.mizuoto"
        assert info["display_name"] and info["description"]
        for group in ("required", "optional"):
            for input_name, (_, options) in info["input"].get(group, {}).items():
                assert options["tooltip"], f"{name}.{input_name}"
        assert len(info["output_tooltips"]) == len(info["output"]) and all(info["output_tooltips"])


def test_widgets_carry_what_the_declarations_say(client: ComfyClient) -> None:
    info = client.object_info("MizuotoPiperEncode")["MizuotoPiperEncode"]["input"]
    text = info["required"]["text"]
    assert text[0] == "STRING" and text[1]["multiline"] and text[1]["dynamicPrompts"] is False
    seed = info["required"]["seed"]
    assert seed[0] == "INT" and (seed[1]["min"], seed[1]["max"]) == (0, 2**64 - 1)
    assert seed[1]["control_after_generate"] is True
    scale = info["optional"]["length_scale"][1]
    assert (scale["default"], scale["min"], scale["max"], scale["step"]) == (-1.0, -1.0, 10.0, 0.05)
    assert info["optional"]["noise_w"][1]["advanced"] is True
    assert info["optional"]["voice"][0] == "MIZUOTO_PIPER_VOICE"


def test_the_menu_lists_installed_and_fetchable_models(client: ComfyClient) -> None:
    kind, options = client.object_info("MizuotoPiperModel")["MizuotoPiperModel"]["input"]["required"]["model"]
    names = options["options"] if kind == "COMBO" else kind
    assert prompts.VOICE in names and len(names) > 50
    assert names == sorted(names)
    assert options["default"] == prompts.VOICE, "an installed voice is the default"


def test_dummy_through_speak(client: ComfyClient) -> None:
    entry = client.run(prompts.speak("Dummy", "Hi there.", options={"tone_seconds": 0.05}))
    report = prompts.report(entry)
    assert (report["engine"], report["model"], report["sample_rate_hz"]) == ("dummy", "tones", 24_000)
    audio, rate_hz = prompts.samples(client, entry)
    assert rate_hz == 24_000 and audio.shape == (1, 9 * 1200)
    assert numpy.abs(audio).max() > 0.01


def test_speak_is_the_same_as_the_phases(client: ComfyClient) -> None:
    spoken = client.run(prompts.speak("Piper", SHORT))
    wired = client.run(prompts.phases(SHORT))
    assert numpy.array_equal(prompts.samples(client, spoken)[0], prompts.samples(client, wired)[0])
    assert [phase["phase"] for phase in prompts.report(wired)["phases"]] == ["encode", "decode"]
    report = prompts.report(spoken)
    assert report["duration_seconds"] > 0.5 and report["memory"]["size_mb"] > 10


def test_the_same_prompt_again_is_fully_cached(client: ComfyClient) -> None:
    prompt = prompts.speak("Piper", SHORT, seed=11)
    client.run(prompt)
    events: list[Event] = []
    client.run(prompt, events.append)
    assert prompts.cached(events) == set(prompt)
    assert prompts.ran(events) == []


def test_another_seed_runs_again(client: ComfyClient) -> None:
    first = client.run(prompts.speak("Piper", SHORT, seed=21))
    events: list[Event] = []
    second = client.run(prompts.speak("Piper", SHORT, seed=22), events.append)
    assert {"encode", "decode"} <= set(prompts.ran(events))
    a, b = prompts.samples(client, first)[0], prompts.samples(client, second)[0]
    assert a.shape != b.shape or not numpy.array_equal(a, b)


@pytest.mark.parametrize("option", [{"noise_scale": 0.2}, {"sentence_silence": 0.5}])
def test_the_decoders_option_does_not_run_the_encoder_again(client: ComfyClient, option: dict[str, float]) -> None:
    first = client.run(prompts.speak("Piper", SHORT, seed=31, options={"noise_scale": 0.6}))
    events: list[Event] = []
    second = client.run(prompts.speak("Piper", SHORT, seed=31, options=option), events.append)
    assert "decode" in prompts.ran(events)
    assert not {"options", "encode"} & set(prompts.ran(events))
    encodes = [prompts.report(entry)["phases"][0] for entry in (first, second)]
    assert encodes[0] == encodes[1], "the very same run of the encoder, its seconds included"
    assert not numpy.array_equal(prompts.samples(client, first)[0], prompts.samples(client, second)[0])


def test_the_encoders_option_runs_both(client: ComfyClient) -> None:
    client.run(prompts.speak("Piper", SHORT, seed=41, options={"length_scale": 1.0}))
    events: list[Event] = []
    client.run(prompts.speak("Piper", SHORT, seed=41, options={"length_scale": 1.5}), events.append)
    assert {"encode", "decode"} <= set(prompts.ran(events))


def test_an_option_set_to_its_default_changes_nothing(client: ComfyClient) -> None:
    client.run(prompts.speak("Piper", SHORT, seed=51))
    events: list[Event] = []
    prompt = prompts.speak("Piper", SHORT, seed=51, options={"length_scale": -1, "sentence_silence": 0, "speaker": ""})
    client.run(prompt, events.append)
    assert not {"voice", "encode", "decode"} & set(prompts.ran(events))


def test_an_option_can_come_from_another_node(client: ComfyClient) -> None:
    prompt = prompts.speak("Dummy", "Hello.", options={"tone_seconds": ["number", 0]})
    for seconds in (0.02, 0.04):
        prompt["number"] = prompts.node("PrimitiveFloat", value=seconds)
        assert prompts.report(client.run(prompt))["length_samples"] == 6 * seconds * 24_000


@pytest.mark.parametrize("suffix", [".onnx", ".onnx.json"])
def test_replacing_a_voices_file_runs_everything_again(client: ComfyClient, base: Path, suffix: str) -> None:
    folder = base / "models" / "mizuoto" / "piper"
    copies = {end: folder / f"replaced{end}" for end in (".onnx", ".onnx.json")}
    for end, copy in copies.items():
        shutil.copyfile(folder / f"{prompts.VOICE}{end}", copy)
    try:
        prompt = prompts.speak("Piper", "Hi.", model="replaced")
        client.run(prompt)
        unchanged: list[Event] = []
        client.run(prompt, unchanged.append)
        assert prompts.ran(unchanged) == []
        os.utime(copies[suffix], (1_000_000_000, 1_000_000_000))
        events: list[Event] = []
        client.run(prompt, events.append)
        assert {"model", "encode", "decode"} <= set(prompts.ran(events))
    finally:
        for copy in copies.values():
            copy.unlink()


def test_progress_comes_at_least_once_a_sentence(client: ComfyClient) -> None:
    sentences = [f"Number {number} is here." for number in ("one", "two", "three", "four", "five", "six")]
    events: list[Event] = []
    client.run(prompts.speak("Piper", " ".join(sentences), seed=61), events.append)
    for phase in ("encode", "decode"):
        values = prompts.steps(events, phase)
        assert {total for _, total in values} == {len(sentences)}
        assert {value for value, _ in values} >= {0, len(sentences)}
    assert {value for value, _ in prompts.steps(events, "decode")} == set(range(len(sentences) + 1))


def test_wrong_wiring_is_refused_before_anything_runs(client: ComfyClient) -> None:
    prompt = prompts.phases(SHORT)
    prompt["dummy"] = prompts.node("MizuotoDummyModel", model="tones")
    prompt["encode"]["inputs"]["model"] = ["dummy", 0]
    with pytest.raises(PromptRejected, match=r"MIZUOTO_DUMMY_MODEL.*mismatch.*MIZUOTO_PIPER_MODEL"):
        client.run(prompt)


def test_unloading_between_runs_changes_nothing(client: ComfyClient) -> None:
    prompt = prompts.speak("Piper", SHORT, seed=71)
    first = client.run(prompt)
    client.free(unload_models=True, free_memory=True)
    events: list[Event] = []
    second = client.run(prompt, events.append)
    if not prompts.ran(events):  # the server frees when it is idle; it may have been quicker to run
        client.free(unload_models=True, free_memory=True)
        second = client.run(prompt, events.append)
    assert {"encode", "decode"} <= set(prompts.ran(events))
    assert numpy.array_equal(prompts.samples(client, first)[0], prompts.samples(client, second)[0])


def test_the_log_is_silent_about_the_pack(client: ComfyClient, server: ComfyServer) -> None:
    start = len(server.log())
    client.run(prompts.speak("Piper", SHORT, seed=81))
    client.run(prompts.speak("Dummy", SHORT, seed=81))
    startup = server.log().partition("To see the GUI go to")[0]
    for part in (startup, server.log()[start:]):
        lines = [line for line in part.splitlines() if NAMES_PACK.search(line)]
        assert [line for line in lines if not IMPORT_TIME.fullmatch(line)] == []
    assert "Traceback" not in server.log()[start:]
