"""Scenario 21: real nodes through ComfyUI's own PromptExecutor, on the fake device."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

import comfy.model_management as mm
import comfy.utils
import execution
import torch
from comfy_execution.utils import get_executing_context

import nodes
from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve

from .launch import PACK
from .rig import MB, SIZE_BYTES, Rig, bridge, component, fake_device, process

TEXT = "Hello there."


class Heard:
    """Keeps what arrives."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ()
    FUNCTION, CATEGORY, OUTPUT_NODE = "hear", "test", True
    clips: ClassVar[list[torch.Tensor]] = []

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"audio": ("AUDIO",)}}

    def hear(self, audio: dict[str, Any]) -> dict[str, Any]:
        self.clips.append(audio["waveform"])
        return {"ui": {"heard": [1]}}


class Server:
    """What the executor asks of the server."""

    client_id = last_node_id = last_prompt_id = None

    def __init__(self) -> None:
        self.sockets_metadata: dict[str, Any] = {}

    def send_sync(self, event: object, data: object, sid: object = None) -> None:
        pass

    send_progress_text = send_sync


class Prompts:
    """An executor, with the pack's nodes known to ComfyUI."""

    def __init__(self) -> None:
        async def listed() -> list[Any]:
            extension = await sys.modules[PACK].comfy_entrypoint()
            return list(await extension.get_node_list())

        for node in asyncio.run(listed()):
            nodes.NODE_CLASS_MAPPINGS[node.GET_SCHEMA().node_id] = node
        nodes.NODE_CLASS_MAPPINGS["TestHeard"] = Heard
        caches = {"lru": 0, "ram": 0, "ram_inactive": 0}
        self.executor = execution.PromptExecutor(Server(), execution.CacheType.CLASSIC, caches)
        self.number = 0

    def run(self, text: str = TEXT, *, seed: int = 1) -> dict[str, Any]:
        """Speak; the last event's name and data."""
        self.number += 1
        prompt = {
            "model": {"class_type": "MizuotoDummyModel", "inputs": {"model": "tones"}},
            "speak": {"class_type": "MizuotoSpeak", "inputs": {"model": ["model", 0], "text": text, "seed": seed}},
            "hear": {"class_type": "TestHeard", "inputs": {"audio": ["speak", 0]}},
        }
        self.executor.execute(prompt, str(self.number), {}, ["hear"])
        name, data = self.executor.status_messages[-1]
        return {"event": name, **data}


@contextmanager
def speaking(size_bytes: int = 4 * SIZE_BYTES) -> Iterator[tuple[Rig, Prompts]]:
    """The pack's session on a fake device, and prompts that use it."""
    with fake_device(size_bytes) as rig:
        settings = resolve({"compute.simulate_vram_mb": str(1 + rig.total_bytes // MB)}, {})
        session = Session(settings, host=bridge.ComfyHost())
        rig.adopt(session.manager)
        with patch.object(process, "_session", session):
            Heard.clips.clear()
            yield rig, Prompts()
            session.close()


def scenario_21_out_of_memory_in_a_node_detaches_everything_and_the_next_run_is_exact() -> None:
    with speaking() as (rig, prompts):
        assert prompts.run()["event"] == "execution_success"
        idle = component("idle")
        expected = rig.run(idle)
        assert len(rig.entries) == 2
        rig.check_books()
        mm.unload_all_models()
        rig.run(idle)

        def fail(size_bytes: int) -> None:
            raise NotEnoughMemory("simulated failure")

        rig.device.before_allocation = fail
        with patch.object(mm, "unload_all_models", wraps=mm.unload_all_models) as unload:
            event = prompts.run(seed=2)
        assert event["event"] == "execution_error", event
        assert event["exception_type"].endswith("OutOfMemoryError"), event
        assert "simulated failure" in event["exception_message"]
        assert unload.called and rig.entries == [] and rig.device.held_bytes() == 0
        rig.device.before_allocation = None
        assert prompts.run(seed=1)["event"] == prompts.run(seed=3)["event"] == "execution_success"
        assert torch.equal(rig.run(idle), expected)
        assert all(torch.equal(clip, Heard.clips[0]) for clip in Heard.clips)
        rig.check_books()


def scenario_21_an_interrupt_propagates_and_the_next_run_is_exact() -> None:
    with speaking() as (rig, prompts):
        prompts.run()

        def interrupt(progress: object, value: int, *arguments: object, **named: object) -> None:
            assert get_executing_context() is not None
            mm.interrupt_current_processing()

        with patch.object(comfy.utils.ProgressBar, "update_absolute", interrupt):
            event = prompts.run("Something longer. " * 20, seed=2)
        assert event["event"] == "execution_interrupted", event
        assert not mm.processing_interrupted(), "the flag was consumed by the exception that arrived"
        assert not any(handle.busy for handle in rig.manager.room.handles)
        rig.check_books()
        prompts.executor.reset()
        assert prompts.run()["event"] == "execution_success"
        assert len(Heard.clips) == 2 and torch.equal(*Heard.clips)


def scenario_21_the_execution_cache_is_dropped_and_weights_come_from_ram() -> None:
    with speaking() as (rig, prompts):
        prompts.run()
        session = process.session()
        with patch.object(session.engines, "module", wraps=session.engines.module) as engine:
            mm.unload_all_models()
            prompts.executor.reset()
            assert rig.entries == [] and rig.device.held_bytes() == 0
            assert prompts.run()["event"] == "execution_success"
        assert engine.call_count > 0 and len(list(session.models)) == 1
        assert len(Heard.clips) == 2 and torch.equal(*Heard.clips)
        rig.check_books()
