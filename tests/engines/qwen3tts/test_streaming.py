"""Qwen3-TTS on a strict, simulated device: the samples are a plain run's, whatever streams, whatever fails (M2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mizuoto_runtime.conformance import conform
from mizuoto_runtime.engines.qwen3tts import speech
from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio, Callbacks, Progress
from tests.engines.operations import check_failing_operations
from tests.engines.streaming import check_failing_allocations, check_streaming, exact_size, simulated
from tests.golden.qwen3tts.checkpoint import reference_sound

CLONED, PRESET, DESIGNED = "base-streamed", "custom-streamed", "design-streamed"


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short request has several steps."""
    monkeypatch.setattr(speech, "STEP_FRAMES", 3)


def finder(name: str) -> Callable[[Session], ModelFiles]:
    return lambda session: session.find("qwen3tts", name)


def request(name: str, frames: int = 7) -> SpeakRequest:
    options: dict[str, object] = {"max_new_tokens": frames + 1, "language": "english"}
    inputs: dict[str, object] = {}
    if name == CLONED:
        inputs = {"reference": Audio(reference_sound(9_000, 3)[None], 24_000), "reference_text": "Hello there."}
    elif name == PRESET:
        options |= {"speaker": "vivian", "instruct": "Softly."}
    else:
        options |= {"description": "A calm, deep voice."}
    return SpeakRequest(text="How are you today?", seed=5, inputs=inputs, options=options)


@pytest.mark.parametrize("name", [CLONED, PRESET, DESIGNED])
def test_the_samples_are_the_same_whatever_streams(library: ModelLibrary, name: str) -> None:
    check_streaming(library, finder(name), request(name))


def test_they_are_with_a_static_cache_too(library: ModelLibrary) -> None:
    settings = resolve({"compute.kv_cache": "static"}, {})
    files = finder(CLONED)(Session(settings, library))
    results = list(conform(settings, library, files, request(CLONED)))
    assert len(results) == 4
    assert all(result.passed for result in results), results


def test_both_caches_give_the_same_samples(library: ModelLibrary) -> None:
    made = []
    for kind in ("dynamic", "static"):
        session = Session(resolve({"compute.kv_cache": kind}, {}), library)
        made.append(session.speak(finder(CLONED)(session), request(CLONED)).audio.samples)
    assert torch.equal(*made)
    assert made[0].shape[-1] == 7 * 1920
    assert made[0].std() > 1e-3


@pytest.mark.parametrize(
    ("name", "share", "retry", "step"),
    [(CLONED, "none", True, 3), (CLONED, "whole", True, 2), (PRESET, "halfway", False, 3)],
)
def test_any_allocation_may_fail(library: ModelLibrary, name: str, share: str, retry: bool, step: int) -> None:
    reached = check_failing_allocations(
        library, finder(name), request(name, 4), retry=retry, share=share, step=step
    )
    assert reached > 4


@pytest.mark.parametrize(("name", "first", "step"), [(CLONED, 40, 1103), (DESIGNED, 90, 701)])
def test_memory_may_run_out_in_any_operation(library: ModelLibrary, name: str, first: int, step: int) -> None:
    exact = check_failing_operations(library, finder(name), request(name, 4), share="whole", first=first, step=step)
    assert len(exact) > 4
    assert all(exact), "where there is something to give up, one failure is always survived"


def test_embeddings_of_text_and_codes_are_gathered_and_the_predictor_stays_first(library: ModelLibrary) -> None:
    session = simulated(library)
    handles = {handle.name: handle for handle in session.open(finder(CLONED)(session)).handles}
    units = {unit.name: unit for unit in handles["talker"].costs()}
    assert {"model.text_embedding", "model.layers.0", "code_predictor.model.layers.0"} <= units.keys()
    assert units["model.text_embedding"].runs < units["model.layers.0"].runs
    assert units["model.layers.0"].runs < units["code_predictor.model.layers.0"].runs
    assert any(unit.name.startswith("semantic.books") for unit in handles["codec_decoder"].costs())


def test_a_cancel_is_noticed_within_one_frame(library: ModelLibrary) -> None:
    session = simulated(library)
    told: list[Progress] = []

    def check() -> None:
        if told and told[-1].done >= 2:
            raise Cancelled("cancelled by the test")

    with pytest.raises(Cancelled), exact_size(session, 64 << 20):
        session.speak(finder(PRESET)(session), request(PRESET, 40), Callbacks(told.append, check))
    assert told[-1].done == 2
    assert told[-1].total >= 20
