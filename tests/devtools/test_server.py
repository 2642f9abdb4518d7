"""The harness itself, on a real ComfyUI server with core nodes only."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from devtools import comfyui
from devtools.client import (
    ComfyClient,
    Event,
    ExecutionFailed,
    ExecutionInterrupted,
    PromptRejected,
    RequestFailed,
    RunTimeout,
    ServerGone,
)
from devtools.comfyui import ComfyServer, ServerFailed, free_port, port_is_free, prepare_base
from devtools.demo import _require_pack, audio_duration_s
from devtools.errors import DevError
from devtools.tree import Tree
from devtools.voice import packaged_voice, place_voice
from devtools.workflow import output_files, output_texts

pytestmark = pytest.mark.server


def hello(text: str) -> dict[str, object]:
    return {
        "1": {"class_type": "PrimitiveString", "inputs": {"value": text}},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }


def silence(seconds: float) -> dict[str, object]:
    return {
        "1": {"class_type": "EmptyAudio", "inputs": {"duration": seconds, "sample_rate": 44100, "channels": 2}},
        "2": {"class_type": "SaveAudio", "inputs": {"audio": ["1", 0], "filename_prefix": "devtools"}},
    }


def slow_images(count: int) -> dict[str, object]:
    """Work of a few seconds that ComfyUI itself can interrupt between nodes."""
    first = {"width": 1024, "height": 1024, "batch_size": 1, "color": time.time_ns() % 0xFFFFFF}  # never cached
    prompt: dict[str, object] = {"0": {"class_type": "EmptyImage", "inputs": first}}
    for index in range(1, count):
        size = {"width": 1500 + index, "height": 1500, "upscale_method": "lanczos", "crop": "disabled"}
        prompt[str(index)] = {"class_type": "ImageScale", "inputs": {"image": [str(index - 1), 0], **size}}
    prompt["end"] = {"class_type": "PreviewImage", "inputs": {"images": [str(count - 1), 0]}}
    return prompt


def test_server_answers_with_the_trees_version(bare_server: ComfyServer, client: ComfyClient, tree: Tree) -> None:
    assert bare_server.running
    assert bare_server.pid != os.getpid()
    assert client.get_json("/system_stats")["system"]["comfyui_version"] == tree.version
    assert "PreviewAny" in client.object_info()
    assert list(client.object_info("PreviewAny")) == ["PreviewAny"]
    assert b"<!doctype html" in client.request("/").lower()


def test_run_returns_outputs_and_events(client: ComfyClient) -> None:
    events: list[Event] = []
    entry = client.run(hello("水 and sound"), events.append)
    assert output_texts(entry) == ["水 and sound"]
    assert entry == client.history(entry["prompt"][1])
    types = [event.type for event in events]
    assert types[0] == "execution_start"
    assert (types[-1], events[-1].data["node"]) == ("executing", None)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)


def test_saved_audio_comes_back_through_view(client: ComfyClient) -> None:
    (file,) = output_files(client.run(silence(1.5)))
    assert audio_duration_s(client.view(file)) == pytest.approx(1.5, abs=1e-3)
    with pytest.raises(RequestFailed) as missing:
        client.view({**file, "filename": "no-such-file.flac"})
    assert missing.value.status == 404


def test_rejected_prompt_names_node_and_input(client: ComfyClient) -> None:
    prompt = hello("x")
    prompt["2"] = {"class_type": "PreviewAny", "inputs": {}}
    with pytest.raises(PromptRejected, match=r"node 2 \(PreviewAny\): Required input is missing: source") as caught:
        client.run(prompt)
    assert "2" in caught.value.node_errors
    with pytest.raises(PromptRejected, match="NoSuchNode"):
        client.queue({"1": {"class_type": "NoSuchNode", "inputs": {}}})
    with pytest.raises(PromptRejected, match="ComfyUI refused the workflow: Prompt has no outputs"):
        client.queue({"1": {"class_type": "PrimitiveString", "inputs": {"value": "x"}}})


def test_failing_node_is_reported_and_the_server_goes_on(client: ComfyClient, bare_server: ComfyServer) -> None:
    broken = bare_server.base / "input" / "broken.wav"
    broken.write_bytes(b"no audio at all")
    prompt = {
        "1": {"class_type": "LoadAudio", "inputs": {"audio": "broken.wav"}},
        "2": {"class_type": "SaveAudio", "inputs": {"audio": ["1", 0], "filename_prefix": "x"}},
    }
    with pytest.raises(ExecutionFailed, match=r"node 1 \(LoadAudio\) failed: .*broken\.wav") as caught:
        client.run(prompt)
    assert caught.value.details["node_id"] == "1"
    assert output_texts(client.run(hello("still here"))) == ["still here"]


def test_interrupt_from_an_event(client: ComfyClient) -> None:
    def cancel(event: Event) -> None:
        if event.type == "executing" and event.data.get("node") == "1":
            client.interrupt(event.data["prompt_id"])

    with pytest.raises(ExecutionInterrupted):
        client.run(slow_images(40), cancel)
    assert output_texts(client.run(hello("after"))) == ["after"]


def test_timeout_interrupts_the_run(client: ComfyClient) -> None:
    with pytest.raises(RunTimeout, match=r"did not end in 0 s"):
        client.run(slow_images(40), timeout_s=0.2)
    assert output_texts(client.run(hello("again"))) == ["again"]


def test_free_drops_the_execution_cache(client: ComfyClient) -> None:
    def cached_nodes() -> list[str]:
        seen: list[str] = []

        def note(event: Event) -> None:
            if event.type == "execution_cached":
                seen.extend(event.data["nodes"])

        client.run(hello("cache me"), note)
        return sorted(seen)

    cached_nodes()
    assert cached_nodes() == ["1", "2"]
    client.free()
    deadline_s = time.monotonic() + 10
    while cached_nodes() and time.monotonic() < deadline_s:
        client.free()
        time.sleep(0.3)
    client.free()
    time.sleep(0.5)
    assert cached_nodes() == []


def test_dead_server_is_reported(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(ServerGone, match="does not answer"):
        ComfyClient(f"http://127.0.0.1:{free_port()}").queue(hello("x"))
    server = ComfyServer(tree, tmp_path, pack=None, extra_args=["--no-such-option"])
    expected = r"ended by itself \(exit code 2\)(.|\n)*--no-such-option(.|\n)*full log: "
    with pytest.raises(ServerFailed, match=expected), server:
        pass
    assert not server.running
    with pytest.raises(DevError):
        server.check()


def test_ctrl_c_during_the_start_stops_the_server(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ComfyServer(tree, tmp_path, pack=None)
    seen: list[bool] = []

    def interrupt() -> bool:
        seen.append(server.running and server._scratch is not None and server._scratch.is_dir())
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "_answers", interrupt)
    with pytest.raises(KeyboardInterrupt), server:
        pass
    assert seen == [True]
    assert not server.running
    assert server._scratch is None


def test_slow_start_is_reported(tree: Tree, tmp_path: Path) -> None:
    server = ComfyServer(tree, tmp_path, pack=None, start_timeout_s=0.3)
    with pytest.raises(ServerFailed, match="did not answer in 0 s"), server:
        pass
    assert not server.running


def test_server_that_dies_during_a_run(tree: Tree, tmp_path: Path) -> None:
    with ComfyServer(tree, tmp_path, pack=None) as server:
        process, scratch = server._process, server._scratch
        assert process is not None and scratch is not None
        killer = threading.Timer(0.5, process.kill)
        killer.start()
        with pytest.raises(ServerGone):
            ComfyClient(server.url).run(slow_images(100))
        killer.join()
        process.wait()
        with pytest.raises(ServerFailed, match="ended by itself"):
            server.check()
    assert not scratch.exists()
    assert port_is_free(server.port)


def test_base_links_the_pack_once_and_refuses_a_stranger(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").touch()
    for _ in range(2):
        base = prepare_base(tmp_path / "base", pack)
        assert (base / "custom_nodes" / "mizuoto").resolve() == pack
    stranger = tmp_path / "other" / "custom_nodes" / "mizuoto"
    stranger.mkdir(parents=True)
    with pytest.raises(DevError, match="is not the pack"):
        prepare_base(tmp_path / "other", pack)


def test_base_copies_the_pack_where_links_are_impossible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = tmp_path / "pack"
    (pack / ".venv").mkdir(parents=True)
    (pack / "__init__.py").write_text("first")

    def refuse(self: Path, target: Path, target_is_directory: bool = False) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    copied = comfyui.prepare_base(tmp_path / "base", pack) / "custom_nodes" / "mizuoto"
    assert (copied / "__init__.py").read_text() == "first"
    assert not (copied / ".venv").exists()
    (pack / "__init__.py").write_text("second")
    comfyui.prepare_base(tmp_path / "base", pack)
    assert (copied / "__init__.py").read_text() == "second"


def test_taken_port_is_seen() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not port_is_free(listener.getsockname()[1])


def test_a_pack_that_did_not_load_is_told_with_the_log(bare_server: ComfyServer) -> None:
    _require_pack(bare_server, {"PreviewAny", "SaveAudio"})
    with pytest.raises(ServerFailed, match=r"could not load the pack(.|\n)*full log: "):
        _require_pack(bare_server, {"MizuotoSpeak"})


def test_voice_is_placed_once_and_a_partial_file_is_replaced(tmp_path: Path) -> None:
    placed = place_voice(tmp_path)
    content = packaged_voice().read_bytes()
    assert placed == tmp_path / "models" / "mizuoto" / "piper" / "en_US-joe-medium.onnx"
    assert placed.read_bytes() == content
    placed.unlink()
    placed.write_bytes(content[:100])
    place_voice(tmp_path)
    assert placed.read_bytes() == content
    assert sorted(path.name for path in placed.parent.iterdir()) == [placed.name, f"{placed.name}.json"]
