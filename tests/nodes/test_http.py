"""The pack's own HTTP routes on a real server whose device is a simulated one."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import pytest

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer
from tests.nodes import prompts
from tests.nodes.http_api import LONG, MB, PIPER, Api

pytestmark = pytest.mark.server


@pytest.fixture
def api(simulated: ComfyServer) -> Iterator[Api]:
    """Nothing is loaded, all settings are as they were."""
    made = Api(simulated.url)
    made.reset()
    yield made
    simulated.check()


@pytest.fixture
def comfy(simulated: ComfyServer) -> ComfyClient:
    return ComfyClient(simulated.url)


def speak(text: str = "Hello there.", **more: object) -> dict[str, object]:
    return {"engine": "piper", "model": prompts.VOICE, "text": text, **more}


def test_runtime_tells_the_truth_before_and_after_a_run(api: Api, comfy: ComfyClient) -> None:
    before = api.get("/runtime")
    assert before["models"] == [] and before["shares"]["own_bytes"] == 0
    assert before["shares"]["total_bytes"] == before["shares"]["free_bytes"] == 256 * MB
    assert before["memory"]["policy"]["mode"] == "normal"
    report = prompts.report(comfy.run(prompts.speak("Piper", "Hello there.", seed=21)))
    after = api.get("/runtime")
    (model,) = after["models"]
    assert (model["id"], model["busy"], model["pinned"]) == (PIPER, False, False)
    assert model["size_bytes"] / 1e6 == pytest.approx(report["memory"]["size_mb"], abs=0.01)
    assert model["loaded_bytes"] + model["streamed_bytes"] + model["host_bytes"] == model["size_bytes"]
    assert after["shares"]["own_bytes"] > 0
    assert sum(size for name, size in after["shares"].items() if name != "total_bytes") == 256 * MB


def test_a_setting_applies_to_the_next_run_and_is_kept(api: Api, comfy: ComfyClient, simulated: ComfyServer) -> None:
    audio = [prompts.samples(comfy, comfy.run(prompts.speak("Piper", "Hello there.", seed=22)))[0]]
    answer = api.send("PATCH", "/settings", {"compute.vram_mode": "none"})
    mode = next(item for item in answer["settings"] if item["name"] == "compute.vram_mode")
    assert (mode["value"], mode["source"], mode["default"]) == ("none", "saved", "auto")
    prompts.free(comfy)
    entry = comfy.run(prompts.speak("Piper", "Hello there.", seed=22))
    report = prompts.report(entry)
    audio.append(prompts.samples(comfy, entry)[0])
    assert report["memory"]["streamed_mb"] > 0
    assert {part["reason"] for part in report["memory"]["partial"].values()} == {"vram_mode none"}
    assert (audio[0] == audio[1]).all()
    assert api.models()[PIPER]["streamed_bytes"] > 0
    kept = json.loads((simulated.base / "user" / "mizuoto" / "settings.json").read_text())
    assert kept == {"compute.vram_mode": "none"}


def test_a_setting_of_the_environment_is_locked(api: Api) -> None:
    settings = {item["name"]: item for item in api.get("/settings")["settings"]}
    jobs = settings["compute.gpu_jobs"]
    assert jobs["locked"] and "MIZUOTO_COMPUTE__GPU_JOBS" in jobs["lock_reason"]
    assert settings["compute.device"]["locked"] and not settings["compute.kv_cache"]["locked"]
    status, _, message = api.error("PATCH", "/settings", {"compute.gpu_jobs": 2})
    assert status == 400 and "environment variable MIZUOTO_COMPUTE__GPU_JOBS is set and wins" in message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"compute.vram_mode": "huge"}, "Known: auto, high"),
        ({"compute.vram_limit_mb": -1}, "must be from 0"),
        ({"compute.oom_retry": "yes"}, "must be on or off"),
        ({"compute.mode": 1}, "unknown setting"),
    ],
)
def test_a_bad_setting_is_refused_with_a_reason(api: Api, body: dict[str, object], message: str) -> None:
    status, _, told = api.error("PATCH", "/settings", body)
    assert status == 400 and message in told
    assert api.saved() == []


def test_a_model_is_moved_and_let_go_of(api: Api, comfy: ComfyClient) -> None:
    comfy.run(prompts.speak("Piper", "Hello there.", seed=23))
    (model,) = api.send("POST", f"/models/{PIPER}/offload")["models"]
    assert model["host_bytes"] == model["size_bytes"]
    assert api.get("/runtime")["shares"]["own_bytes"] == 0
    assert api.send("POST", f"/models/{PIPER}/unload")["models"] == []
    assert api.error("POST", f"/models/{PIPER}/unload") == (
        404, "ModelNotLoaded", f"{PIPER} isn't loaded; loaded: none",
    )  # fmt: skip


def test_a_model_is_pinned_and_unpinned(api: Api, comfy: ComfyClient) -> None:
    comfy.run(prompts.speak("Piper", "Hello there.", seed=24))
    assert api.send("POST", f"/models/{PIPER}/pin")["models"][0]["pinned"]
    assert api.get("/runtime")["memory"]["policy"]["pinned_models"] == [PIPER]
    assert not api.send("POST", f"/models/{PIPER}/unpin")["models"][0]["pinned"]
    assert api.saved() == []


def test_changes_that_come_at_once_are_all_kept(api: Api) -> None:
    (piper,) = [engine for engine in api.get("/engines")["engines"] if engine["id"] == "piper"]
    voices = [model["id"] for model in piper["models"]][:8]
    changes = {"compute.vram_mode": "low", "compute.vram_limit_mb": 200, "compute.oom_retry": False}
    with ThreadPoolExecutor(16) as pool:
        pins = [pool.submit(api.send, "POST", f"/models/piper:{voice}/pin") for voice in voices]
        patches = [pool.submit(api.send, "PATCH", "/settings", {name: value}) for name, value in changes.items()]
        for each in (*pins, *patches):
            each.result()
    settings = {item["name"]: item["value"] for item in api.get("/settings")["settings"]}
    assert sorted(settings["engines.piper.pinned_models"]) == sorted(voices)
    assert changes.items() <= settings.items()
    policy = api.get("/runtime")["memory"]["policy"]
    assert (policy["mode"], policy["limit_bytes"], policy["oom_retry"]) == ("low", 200 * MB, False)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/models/piper/unload", 400, "must have the form engine:model"),
        ("/models/nothing:x/unload", 400, "unknown engine"),
        ("/models/piper:..%2F..%2Fetc/unload", 404, "isn't loaded"),
        ("/models/piper:..%2F..%2Fetc/pin", 400, "unknown model"),
        (f"/models/{PIPER}/delete", 400, "unknown action"),
    ],
)
def test_a_model_that_is_not_there_says_so(api: Api, path: str, status: int, message: str) -> None:
    found, _, told = api.error("POST", path)
    assert found == status and message in told


def test_speak_waits_for_the_audio(api: Api) -> None:
    status, content, kind = api.ask("POST", "/speak", speak(wait=True, options={"length_scale": 1.2}))
    assert (status, kind) == (200, "audio/flac"), content
    with av.open(io.BytesIO(content)) as container:
        assert container.streams.audio[0].rate == 22_050
        assert sum(frame.samples for frame in container.decode(audio=0)) > 10_000


def test_an_option_may_be_the_value_that_means_as_the_model_says(api: Api) -> None:
    heard = []
    for options in ({"length_scale": -1, "noise_scale": -1.0, "speaker": ""}, {}):
        status, content, _ = api.ask("POST", "/speak", speak(seed=32, wait=True, options=options))
        assert status == 200, content
        with av.open(io.BytesIO(content)) as container:
            heard.append([frame.to_ndarray().tobytes() for frame in container.decode(audio=0)])
    assert heard[0] == heard[1]


def test_the_same_speech_again_comes_from_the_cache(api: Api) -> None:
    first, second = (api.ask("POST", "/speak", speak(seed=31, wait=True)) for _ in range(2))
    assert first[0] == second[0] == 200 and first[1] == second[1]


def test_speak_without_waiting_returns_the_prompt(api: Api, comfy: ComfyClient) -> None:
    prompt_id = api.send("POST", "/speak", speak(seed=25))["prompt_id"]
    deadline_s = time.monotonic() + 60
    while comfy.history(prompt_id) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert comfy.history(prompt_id)["status"]["status_str"] == "success"  # type: ignore[index]


def test_speak_that_takes_too_long_goes_on_without_the_caller(api: Api, comfy: ComfyClient) -> None:
    status, content, _ = api.ask("POST", "/speak", speak(LONG, seed=26, wait=True, timeout_seconds=0.05))
    error = json.loads(content)["error"]
    assert (status, error["type"]) == (504, "TimedOut")
    comfy.interrupt()
    assert error["prompt_id"] in error["message"]


def test_a_cancelled_run_says_so(api: Api, comfy: ComfyClient) -> None:
    def cancel() -> None:
        time.sleep(1.5)
        comfy.interrupt()

    thread = threading.Thread(target=cancel)
    thread.start()
    status, kind, message = api.error("POST", "/speak", speak(LONG * 4, seed=27, wait=True))
    thread.join()
    assert (status, kind, message) == (502, "QueueFailed", "the run was cancelled")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "engine must be given"),
        (speak(engine="nothing"), 400, "unknown engine"),
        (speak(model="nothing"), 400, "unknown Piper model"),
        (speak(model="../../etc/passwd"), 400, "unknown Piper model"),
        (speak(model="en_US-lessac-high"), 404, "isn't installed"),
        (speak(text=5), 400, "text must be given"),
        (speak(" "), 400, "the text is empty"),
        (speak("a\x00"), 400, "is a control character"),
        (speak("\ud83d", wait=True), 400, "half a surrogate pair"),
        (speak(engine="omnivoice", texts={"reference_text": "\x07"}), 400, "is a control character"),
        (speak(seed=-1), 400, "seed"),
        (speak(seed="1"), 400, "seed must be a whole number"),
        (speak(wait="yes"), 400, "wait must be true or false"),
        (speak(wait=True, timeout_seconds=0), 400, "timeout_seconds must be"),
        (speak(options={"length_scale": 99}), 400, "length_scale"),
        (speak(options={"speed": 1}), 400, "unknown option of Piper 'speed'"),
        (speak(options=[]), 400, "options must be an object"),
        (speak(recordings={"reference": "a.wav"}), 400, "unknown audio input of Piper"),
        (speak(where="/tmp"), 400, "unknown field 'where'"),
        (speak(engine="qwen3tts", recordings={"reference": "../a.wav"}), 400, "plain name"),
        (speak(engine="voxcpm", texts={"reference_text": "a"}), 400, "or give prompt or reference too"),
        (speak(engine="f5tts", texts={"reference_text": "a"}), 400, "it also needs: reference"),
        (speak(engine="f5tts", recordings={"recording": "a.wav"}, options={"speed": 2}), 400, "no use for speed"),
        ([], 400, "must be a JSON object"),
    ],
)
def test_a_bad_request_is_refused_before_anything_runs(api: Api, body: Any, status: int, message: str) -> None:
    found, _, told = api.error("POST", "/speak", body)
    assert found == status and message in told, told
    assert api.models() == {}


@pytest.mark.parametrize(
    ("raw", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"text": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"text=hello", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
        (b" " * (MB + 1), "application/json", 413),
    ],
)
@pytest.mark.parametrize("route", ["POST /speak", "PATCH /settings"])
def test_a_body_that_cannot_be_read_is_refused(api: Api, route: str, raw: bytes, kind: str, status: int) -> None:
    method, path = route.split()
    assert api.error(method, path, raw=raw, kind=kind)[0] == status


def test_reads_do_not_wait_for_a_generation(api: Api, comfy: ComfyClient) -> None:
    prompt_id = api.send("POST", "/speak", speak(LONG * 4, seed=28))["prompt_id"]
    slowest, busy, deadline_s = 0.0, False, time.monotonic() + 60
    while not busy:
        assert time.monotonic() < deadline_s
        began_s = time.monotonic()
        busy = any(model["busy"] for model in api.models().values())
        slowest = max(slowest, time.monotonic() - began_s)
    assert api.error("POST", f"/models/{PIPER}/unload")[:2] == (409, "ModelBusy")
    assert comfy.history(prompt_id) is None, "it is running still"
    comfy.interrupt(prompt_id)
    assert slowest < 5


def test_doctor_and_engines_are_what_the_command_line_shows(api: Api) -> None:
    doctor = api.get("/doctor")
    assert doctor["settings"]["compute.simulate_vram_mb"] == {
        "value": 256, "source": "MIZUOTO_COMPUTE__SIMULATE_VRAM_MB",
    }  # fmt: skip
    engines = {engine["id"]: engine for engine in api.get("/engines")["engines"]}
    assert {"piper", "dummy"} <= set(engines)
    assert [model["id"] for model in engines["piper"]["models"] if model["installed"]] == [prompts.VOICE]
    assert engines["piper"]["loader_node"] == "MizuotoPiperModel"


def test_nothing_of_the_machine_is_told_beyond_what_doctor_names(api: Api) -> None:
    assert str(Path.home()) not in json.dumps(api.get("/runtime"))
    assert os.sep + "etc" not in json.dumps(api.get("/settings"))
