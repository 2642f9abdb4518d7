"""What this ComfyUI's own source touches on the models in its list."""

from __future__ import annotations

from pathlib import Path

import comfy.model_management as mm

from .members import MANAGEMENT, missing, touched
from .rig import SIZE_BYTES, bridge, component, fake_device

ALWAYS = {"load_device", "model", "parent", "model_size", "loaded_size", "partially_load", "partially_unload", "detach"}


def scenario_contract_the_adapter_has_every_member_that_is_touched() -> None:
    found = touched(Path(mm.__file__).parents[1])
    assert found[MANAGEMENT] >= ALWAYS, "the source was understood"
    with fake_device(4 * SIZE_BYTES) as rig:
        handle = component("h")
        rig.run(handle)
        lacking = missing(handle.entry, found)
        assert not lacking, f"ComfyUI touches members that adapters lack: {lacking}"


def scenario_contract_the_adapter_is_a_model_patcher_that_answers_for_itself() -> None:
    with fake_device(4 * SIZE_BYTES) as rig:
        first, second = component("a"), component("b", 2)
        for handle in (first, second):
            rig.run(handle)
        assert first.entry.is_clone(first.entry) and hash(first.entry) == hash(first.entry)
        assert not first.entry.is_clone(second.entry) and not first.entry.is_clone(None)
        assert first.entry.model is not second.entry.model and not list(first.entry.model.parameters())
        assert isinstance(first.entry, bridge.comfy.model_patcher.ModelPatcher)
