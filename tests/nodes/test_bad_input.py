"""Bad input on a real server: a clear error in the node, the server goes on, the next prompt works."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import psutil
import pytest

from devtools.client import ClientError, ComfyClient, ExecutionFailed, PromptRejected
from devtools.comfyui import ComfyServer
from tests.nodes import prompts

pytestmark = pytest.mark.server

NAN, INFINITY = float("nan"), float("inf")
MAX_GROWTH_BYTES = 1_500_000_000


def complaint(client: ComfyClient, prompt: prompts.Prompt) -> str:
    """The message of the error that the prompt gives; then the server must still speak."""
    with pytest.raises((ExecutionFailed, PromptRejected)) as caught:
        client.run(prompt, timeout_s=120)
    if isinstance(caught.value, ExecutionFailed):
        assert prompts.PACK_ERROR in caught.value.details["exception_type"], caught.value.details["traceback"]
    json.dumps(client.get_json("/history")).encode("utf-8")
    works(client)
    return str(caught.value)


def works(client: ComfyClient) -> None:
    assert prompts.report(client.run(prompts.speak("Dummy", "ok")))["engine"] == "dummy"


@pytest.mark.parametrize("engine", ["Piper", "Dummy"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty; write something to speak"),
        (" \t\n ", "the text is empty"),
        ("a\x00b", r"character 2 of the text (U+0000) is a control character; remove it"),
        ("bell\x07", r"U+0007"),
        ("one \ud83d two", r"(U+D83D) is half a surrogate pair; remove it"),
        ("\udfff", "half a surrogate pair"),
    ],
)
def test_texts_that_cannot_be_spoken(client: ComfyClient, engine: str, text: str, message: str) -> None:
    assert message in complaint(client, prompts.speak(engine, text))


@pytest.mark.parametrize("text", ["😀🎉", "👩‍👩‍👧‍👦", "!?! … —", "\u200b\u200d"])
def test_texts_without_words_are_sounded_or_refused(client: ComfyClient, text: str) -> None:
    """espeak-ng knows the names of some emoji, and the voice has a sound for some marks."""
    try:
        audio, _ = prompts.samples(client, client.run(prompts.speak("Piper", text)))
    except ExecutionFailed as error:
        assert "can be spoken" in str(error) or "the text is empty" in str(error)
        assert prompts.PACK_ERROR in error.details["exception_type"]
    else:
        assert 0 < numpy.abs(audio).max() < 1
    works(client)


def test_a_hundred_thousand_characters(client: ComfyClient, server: ComfyServer) -> None:
    """Dummy, so that it ends in time: 100,000 tones of 10 ms are 96 MB of samples."""
    process = psutil.Process(server.pid)
    before_bytes, most_bytes = process.memory_info().rss, 0

    def watch(_event: object) -> None:
        nonlocal most_bytes
        most_bytes = max(most_bytes, process.memory_info().rss)

    prompt = prompts.speak("Dummy", "lorem ipsum " * 8_334, options={"tone_seconds": 0.01})
    prompt.pop("save")  # an hour of FLAC is not what this is about
    entry = client.run(prompt, watch, timeout_s=1800)
    assert prompts.report(entry)["length_samples"] == 12 * 8_334 * 240
    assert most_bytes - before_bytes < MAX_GROWTH_BYTES
    works(client)


def test_more_than_a_million_characters_are_refused(client: ComfyClient) -> None:
    message = complaint(client, prompts.speak("Dummy", "x" * 1_000_001))
    assert "the text has 1,000,001 characters; 1,000,000 are the most, so split it" in message


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"noise_scale": NAN}, ["noise_scale"]),
        ({"length_scale": NAN}, ["length_scale"]),
        ({"length_scale": INFINITY}, ["Value inf bigger than max of 10"]),
        ({"length_scale": -5}, ["smaller than min"]),
        ({"length_scale": -0.5}, ["is -0.5; it must be from 0.1 to 10, or -1.0 for the model's own"]),
        ({"length_scale": 0}, ["option 'length_scale' is 0.0; it must be from 0.1 to 10"]),
        ({"length_scale": 1e300}, ["bigger than max"]),
        ({"noise_w": 1e9}, ["bigger than max"]),
        ({"sentence_silence": -1}, ["smaller than min"]),
        ({"sentence_silence": "soon"}, ["Failed to convert an input value to a FLOAT value"]),
        ({"speaker": "bob"}, ["unknown speaker 'bob'. Known:"]),
        ({"speaker": "99"}, ["unknown speaker '99'. Known:"]),
        ({"speaker": "\ud800"}, [r"unknown speaker '\ud800'"]),
    ],
)
def test_options_out_of_range(client: ComfyClient, options: dict, messages: list[str]) -> None:
    said = complaint(client, prompts.speak("Piper", "Hello.", options=options))
    for message in messages:
        assert message in said


@pytest.mark.parametrize("value", [-0.5, NAN])
def test_phase_nodes_check_their_own_parameters(client: ComfyClient, value: float) -> None:
    assert "option 'length_scale' is" in complaint(client, prompts.phases("Hello.", encode={"length_scale": value}))


@pytest.mark.parametrize("seed", [-1, 2**64, "x"])
def test_seeds_out_of_range(client: ComfyClient, seed: object) -> None:
    with pytest.raises(PromptRejected, match="seed"):
        client.run(prompts.speak("Dummy", "x", seed=seed))
    works(client)


def test_the_largest_seed(client: ComfyClient) -> None:
    report = prompts.report(client.run(prompts.speak("Dummy", "x", seed=2**64 - 1)))
    assert report["phases"][0]["seed"] == 2**64 - 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no such voice", "unknown Piper model 'no such voice'"),
        ("../../../../etc/passwd", "unknown Piper model"),
        ("/etc/passwd", "unknown Piper model"),
        ("\ud800", r"unknown Piper model '\ud800'"),
        ({"a": 1}, "unknown Piper model"),
        (7, "unknown Piper model"),
    ],
)
def test_models_that_do_not_exist(client: ComfyClient, model: object, message: str) -> None:
    assert message in complaint(client, prompts.speak("Piper", "Hello.", model=model))


def test_a_model_that_is_not_installed_names_folder_and_command(client: ComfyClient, base: Path) -> None:
    said = complaint(client, prompts.speak("Piper", "Hello.", model="de_DE-thorsten-medium"))
    assert str(base / "models" / "mizuoto" / "piper") in said
    assert "python -m mizuoto_runtime models fetch piper de_DE-thorsten-medium" in said


def test_a_model_that_is_typed_in_instead_of_linked(client: ComfyClient) -> None:
    prompt = prompts.speak("Dummy", "Hello.")
    prompt["speak"]["inputs"]["model"] = "tones"
    assert "the input 'model' is 'tones'; connect a Model node" in complaint(client, prompt)


def test_options_of_another_engine(client: ComfyClient) -> None:
    prompt = prompts.speak("Piper", "Hello.", options={})
    prompt["options"]["class_type"] = "MizuotoDummyOptions"
    assert "the options are for Dummy, the model is Piper; connect Piper Options" in complaint(client, prompt)


def test_a_voice_of_another_engine(client: ComfyClient) -> None:
    prompt = prompts.speak("Dummy", "Hello.")
    prompt["piper"] = prompts.node("MizuotoPiperModel", model=prompts.VOICE)
    prompt["voice"] = prompts.node("MizuotoPiperVoice", model=["piper", 0], speaker="0")
    prompt["speak"]["inputs"]["voice"] = ["voice", 0]
    assert "Dummy takes no input 'voice'; disconnect it" in complaint(client, prompt)


@pytest.fixture
def voices(base: Path) -> Iterator[Callable[..., str]]:
    """Makes a voice from the demo's, with `onnx` and `config` (None: left out) instead of its files."""
    folder = base / "models" / "mizuoto" / "piper"
    made: list[Path] = []
    source = folder / f"{prompts.VOICE}.onnx"

    def make(*, onnx: bytes | None = None, config: object = "same", name: str = "broken") -> str:
        path = folder / f"{name}.onnx"
        made.extend((path, folder / f"{name}.onnx.json"))
        if onnx is None:
            shutil.copyfile(source, path)
        else:
            path.write_bytes(onnx)
        if config == "same":
            shutil.copyfile(f"{source}.json", f"{path}.json")
        elif config is not None:
            content = config if isinstance(config, bytes) else json.dumps(config).encode()
            Path(f"{path}.json").write_bytes(content)
        return name

    yield make
    for path in made:
        path.unlink(missing_ok=True)


def demo_config(base: Path, **changes: object) -> dict:
    path = base / "models" / "mizuoto" / "piper" / f"{prompts.VOICE}.onnx.json"
    return {**json.loads(path.read_text(encoding="utf-8")), **changes}


def test_a_voice_without_its_json(client: ComfyClient, voices: Callable[..., str]) -> None:
    assert "broken.onnx.json" in complaint(client, prompts.speak("Piper", "Hello.", model=voices(config=None)))


@pytest.mark.parametrize("config", [b"", b"not json", b"[1, 2]", b"{}", b'{"audio": ' * 10_000], ids=range(5))
def test_a_voice_with_a_damaged_json(client: ComfyClient, voices: Callable[..., str], config: bytes) -> None:
    assert "broken" in complaint(client, prompts.speak("Piper", "Hello.", model=voices(config=config)))


@pytest.mark.parametrize("part", [0, 1, 1_000, 30_000_000])
def test_a_truncated_voice(client: ComfyClient, base: Path, voices: Callable[..., str], part: int) -> None:
    source = base / "models" / "mizuoto" / "piper" / f"{prompts.VOICE}.onnx"
    with source.open("rb") as file:
        content = file.read(part)
    assert "broken.onnx" in complaint(client, prompts.speak("Piper", "Hello.", model=voices(onnx=content)))


@pytest.mark.parametrize("content", [b"I am a text, not a voice.\n" * 40, b"PK\x03\x04" + os.urandom(500)])
def test_a_file_that_is_no_voice(client: ComfyClient, voices: Callable[..., str], content: bytes) -> None:
    assert "broken.onnx" in complaint(client, prompts.speak("Piper", "Hello.", model=voices(onnx=content)))


def test_a_voice_that_was_renamed_meanwhile(client: ComfyClient, base: Path, voices: Callable[..., str]) -> None:
    name = voices()
    client.run(prompts.speak("Piper", "Hi.", model=name))
    (base / "models" / "mizuoto" / "piper" / "broken.onnx").unlink()
    assert "unknown Piper model 'broken'" in complaint(client, prompts.speak("Piper", "Hi.", model=name))


@pytest.mark.parametrize("voice", ["../../../../../etc/passwd", "/etc/passwd", "..\\..\\x", "en-us\x00", "x" * 10_000])
def test_a_json_that_points_elsewhere(client: ComfyClient, base: Path, voices: Callable[..., str], voice: str) -> None:
    name = voices(config=demo_config(base, espeak={"voice": voice}))
    said = complaint(client, prompts.speak("Piper", "Hello.", model=name))
    assert "root:" not in said


@pytest.mark.parametrize(
    "changes",
    [
        {"num_symbols": 10**12},
        {"num_speakers": 10**12},
        {"num_speakers": -1},
        {"audio": {"sample_rate": 10**12}},
        {"audio": {"sample_rate": 0}},
        {"phoneme_id_map": {"a": [10**9]}},
        {"phoneme_id_map": {"a": [-5]}},
        {"inference": {"noise_scale": 1e308, "length_scale": 1e308, "noise_w": 1e308}},
        {"inference": {"length_scale": "fast"}},
    ],
    ids=str,
)
def test_a_json_with_absurd_figures(
    client: ComfyClient, base: Path, voices: Callable[..., str], changes: dict[str, object]
) -> None:
    name = voices(config=demo_config(base, **changes))
    complaint(client, prompts.speak("Piper", "Hello.", model=name))


def test_a_file_name_that_is_no_utf8(client: ComfyClient, base: Path) -> None:
    folder = os.fsencode(base / "models" / "mizuoto" / "piper")
    path = os.path.join(folder, b"odd\xff.onnx")  # noqa: PTH118 - a Path can't hold these bytes
    try:
        with open(path, "wb"):  # noqa: PTH123
            pass
    except OSError:
        pytest.skip("this file system has only UTF-8 names")
    try:
        info = client.object_info("MizuotoPiperModel")
        assert "odd" in json.dumps(info)
        with pytest.raises(ClientError):
            client.run(prompts.speak("Piper", "Hello.", model="odd\udcff"), timeout_s=60)
        works(client)
    finally:
        os.unlink(path)  # noqa: PTH108
