"""What a session says it holds, before, during and after a run, and what can be let go of."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mizuoto_runtime.errors import ModelBusy, ModelNotLoaded
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.loader import LoadedModel
from mizuoto_runtime.models import Models
from mizuoto_runtime.runtime import ModelFacts, runtime_facts
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Callbacks, ModelRef, Progress
from tests.engines.lmcodec.test_lmcodec import ENGINES, one_thread  # noqa: F401

MB = 1 << 20


def session(tmp_path: Path, simulate_mb: int, **texts: str) -> Session:
    explicit = {"compute.simulate_vram_mb": str(simulate_mb), "compute.vram_reserve_mb": "0"}
    named = {name.replace("__", "."): text for name, text in texts.items()}
    return Session(resolve({**explicit, **named}, {}), ModelLibrary([tmp_path]), engines=ENGINES)


def speak(session: Session, callbacks: Callbacks | None = None) -> None:
    files = session.find("lmcodec", "tied")
    session.speak(files, SpeakRequest(text="hi"), callbacks)


def the_model(session: Session) -> ModelFacts:
    (model,) = runtime_facts(session)["models"]
    return model


def test_nothing_is_held_before_the_first_run(tmp_path: Path) -> None:
    facts = runtime_facts(session(tmp_path, 64))
    assert facts["models"] == []
    assert facts["shares"] is not None
    assert facts["shares"]["free_bytes"] == facts["shares"]["total_bytes"] == 64 * MB


@pytest.mark.parametrize("mode", ["high", "none"])
def test_the_parts_of_a_model_add_up_and_the_device_too(tmp_path: Path, mode: str) -> None:
    made = session(tmp_path, 256, compute__vram_mode=mode)
    speak(made)
    facts, model = runtime_facts(made), the_model(made)
    for part in (model, *model["components"]):
        assert part["loaded_bytes"] + part["streamed_bytes"] + part["host_bytes"] == part["size_bytes"] > 0
    assert (model["streamed_bytes"] > 0) is (mode == "none")
    shares = facts["shares"]
    assert shares is not None and shares["own_bytes"] == made.manager.device.held_bytes() > 0
    assert shares["total_bytes"] == sum(size for name, size in shares.items() if name != "total_bytes")  # type: ignore[misc]


def test_a_plain_cpu_has_no_shares_and_holds_everything(tmp_path: Path) -> None:
    made = Session(resolve({}, {}), ModelLibrary([tmp_path]), engines=ENGINES)
    speak(made)
    assert runtime_facts(made)["shares"] is None
    model = the_model(made)
    assert model["loaded_bytes"] == model["size_bytes"] > 0


def test_during_a_run_the_model_is_busy_and_cannot_be_let_go_of(tmp_path: Path) -> None:
    made, seen = session(tmp_path, 256), list[bool]()
    ref = made.find("lmcodec", "tied").ref

    def look(progress: Progress) -> None:
        model = the_model(made)
        seen.append(model["busy"])
        assert any(part["busy"] for part in model["components"]) and model["idle_seconds"] == 0
        for act in (made.unload, made.offload):
            with pytest.raises(ModelBusy, match="lmcodec:tied is in use"):
                act(ref)

    speak(made, Callbacks(progress=look))
    assert seen and all(seen)
    assert not the_model(made)["busy"]


def test_offloading_leaves_the_device_and_unloading_leaves_nothing(tmp_path: Path) -> None:
    made = session(tmp_path, 256)
    speak(made)
    ref = made.find("lmcodec", "tied").ref
    assert made.offload(ref) > 0
    assert made.manager.device.held_bytes() == 0
    model = the_model(made)
    assert model["host_bytes"] == model["size_bytes"]
    made.unload(ref)
    assert runtime_facts(made)["models"] == []
    with pytest.raises(ModelNotLoaded, match="lmcodec:tied isn't loaded; loaded: none"):
        made.unload(ref)
    speak(made)
    assert the_model(made)["id"] == "lmcodec:tied"


def test_settings_apply_from_the_next_phase_on(tmp_path: Path) -> None:
    made = session(tmp_path, 256)
    speak(made)
    assert the_model(made)["streamed_bytes"] == 0
    made.apply(made.settings.changed({"compute.vram_mode": "none"}, "test"))
    speak(made)
    assert the_model(made)["streamed_bytes"] > 0


class Files(ModelFiles):
    def identity(self) -> tuple[tuple[str, int, int], ...]:
        return ()


def test_a_model_that_is_being_loaded_keeps_nobody_from_looking() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def load(files: ModelFiles) -> LoadedModel:
        begun.set()
        assert go_on.wait(30)
        return LoadedModel(files.ref, None, [])

    models = Models(load, lambda: 3)
    thread = threading.Thread(target=models.open, args=(Files(ModelRef("engine", "slow"), None),))
    thread.start()
    assert begun.wait(30)
    began = time.monotonic()
    assert list(models) == []
    assert time.monotonic() - began < 1
    go_on.set()
    thread.join(30)
    assert [model.id for model in models] == ["engine:slow"]


def test_two_threads_load_a_model_once_and_the_oldest_goes() -> None:
    loaded: list[str] = []

    def load(files: ModelFiles) -> LoadedModel:
        time.sleep(0.01)
        loaded.append(files.ref.model)
        return LoadedModel(files.ref, None, [])

    models = Models(load, lambda: 2)
    first = Files(ModelRef("engine", "a"), None)
    threads = [threading.Thread(target=models.open, args=(first,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert loaded == ["a"]
    for name in ("b", "a", "c"):
        models.open(Files(ModelRef("engine", name), None))
    assert ([model.ref.model for model in models], loaded) == (["a", "c"], ["a", "b", "c"])


def test_a_model_is_loaded_anew_with_other_settings_that_loading_heeds() -> None:
    forms = ["auto"]
    models = Models(lambda files: LoadedModel(files.ref, None, []), lambda: 3, form=lambda: forms[-1])
    files = Files(ModelRef("engine", "a"), None)
    first = models.open(files)
    forms.append("bfloat16")
    second = models.open(files)
    assert second is not first and list(models) == [second]


def test_of_too_many_models_an_idle_one_goes_rather_and_a_pinned_one_last() -> None:
    most = 2
    models = Models(lambda files: LoadedModel(files.ref, None, []), lambda: most, lambda ref: ref.model == "pinned")

    def opened(name: str) -> LoadedModel:
        return models.open(Files(ModelRef("engine", name), None))

    kept, _, other = opened("pinned"), opened("first"), opened("second")
    assert [model.ref.model for model in models] == ["pinned", "second"], "whichever was used before"
    most = 3
    opened("third")
    most = 2
    with other.running():
        assert opened("pinned") is kept
        assert [model.ref.model for model in models] == ["second", "pinned"], "the other one is busy"


@pytest.mark.parametrize("mode", ["high", "none"])
def test_the_peak_of_a_run_is_what_its_weights_and_slots_took(tmp_path: Path, mode: str) -> None:
    made = session(tmp_path, 256, compute__vram_mode=mode)
    output = made.speak(made.find("lmcodec", "tied"), SpeakRequest(text="hi"))
    memory: Any = output.meta["memory"]
    held = [handle.held_bytes for model in made.models for handle in model.handles]
    assert memory["peak_mb"] * 1e6 == pytest.approx(max(held), abs=1e3)
    assert (memory["peak_mb"] < memory["size_mb"] / 2) is (mode == "none")
