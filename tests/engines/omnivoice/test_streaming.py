"""OmniVoice on a strict, simulated device: the samples are a plain run's, whatever streams, whatever fails (M2)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mizuoto_runtime.engines.omnivoice import speech
from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.nn import products
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio, Callbacks, Progress
from tests.engines.operations import check_failing_operations
from tests.engines.streaming import check_failing_allocations, check_packed, check_streaming, exact_size, simulated
from tests.golden.omnivoice.checkpoint import reference_sound, write_checkpoint

STREAMED = "streamed"


def find(session: Session) -> ModelFiles:
    return session.find("omnivoice", STREAMED)


def request(*, cloned: bool, **options: object) -> SpeakRequest:
    inputs: dict[str, object] = {}
    if cloned:
        inputs = {"reference": Audio(reference_sound(9_600, 3), 24_000), "reference_text": "Hello there."}
    else:
        options |= {"instruct": "male, low pitch"}
    options = {"num_step": 3, "duration": 0.4, "class_temperature": 0.5} | options
    return SpeakRequest(text="How are [sigh] you?", seed=5, inputs=inputs, options=options)


def chunked() -> SpeakRequest:
    options: dict[str, object] = {"audio_chunk_threshold": 0.5, "audio_chunk_duration": 0.5, "num_step": 2}
    return SpeakRequest(text="How are you? Hello there. The lazy dog.", seed=5, options=options | {"speed": 8.0})


@pytest.mark.parametrize("cloned", [True, False])
def test_the_samples_are_the_same_whatever_streams(library: ModelLibrary, cloned: bool) -> None:
    check_streaming(library, find, request(cloned=cloned))


def test_they_are_in_chunks_too(library: ModelLibrary) -> None:
    check_streaming(library, find, chunked())


@pytest.mark.parametrize("guidance", [0.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_with_packed_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guidance: float, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 0)
    write_checkpoint(tmp_path / "omnivoice" / STREAMED, STREAMED, dtype=dtype)
    library = ModelLibrary([tmp_path])
    check_streaming(library, find, request(cloned=False, guidance_scale=guidance))
    check_packed(library, find, dtype)


@pytest.mark.parametrize(
    ("cloned", "share", "retry"), [(True, "none", True), (True, "whole", True), (False, "halfway", False)]
)
def test_any_allocation_may_fail(library: ModelLibrary, cloned: bool, share: str, retry: bool) -> None:
    asked = request(cloned=cloned, num_step=2)
    assert check_failing_allocations(library, find, asked, retry=retry, share=share, step=5) > 4


@pytest.mark.parametrize(("cloned", "first", "step"), [(True, 40, 601), (False, 90, 301)])
def test_memory_may_run_out_in_any_operation(library: ModelLibrary, cloned: bool, first: int, step: int) -> None:
    asked = request(cloned=cloned, num_step=2)
    exact = check_failing_operations(library, find, asked, share="whole", first=first, step=step)
    assert len(exact) > 2
    assert all(exact), "where there is something to give up, one failure is always survived"


def network_of(session: Session) -> ModelHandle:
    (handle,) = (each for each in session.open(find(session)).handles if each.name == "model")
    return handle


def test_embeddings_are_gathered_and_layers_and_heads_stream(library: ModelLibrary) -> None:
    handle = network_of(simulated(library))
    units = {unit.name: unit for unit in handle.costs()}
    layers = {f"llm.layers.{index}" for index in range(3)}
    assert {"llm.embed_tokens", "audio_embeddings", "audio_heads", *layers} <= units.keys()
    assert units["llm.embed_tokens"].runs < units["llm.layers.0"].runs


def test_each_step_copies_each_streamed_unit_once_for_both_halves_of_guidance(
    library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "unmasking_bytes", lambda *sizes: 0)
    streamed = {}
    for steps, guidance in ((1, 2.0), (2, 2.0), (3, 0.0), (3, 2.0)):
        session = simulated(library)
        with exact_size(session, network_of(session).minimum_bytes(1)):
            options = {"num_step": steps, "guidance_scale": guidance, "duration": 0.4}
            (codes,) = session.run_phase(find(session), "generate", {"text": "How are you?"}, options, 5)
        streamed[steps, guidance] = codes.reports[-1].memory.streamed_bytes
    assert streamed[3, 0.0] == streamed[3, 2.0]
    assert streamed[3, 2.0] - streamed[2, 2.0] == streamed[2, 2.0] - streamed[1, 2.0] > 0


def test_a_cancel_is_noticed_within_a_step(library: ModelLibrary) -> None:
    session = Session(resolve(environment={}), library)
    told: list[Progress] = []
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += bool(told and told[-1].total == 40 and told[-1].done == 1)
        if checks > 2:
            raise Cancelled("cancelled by the test")

    with pytest.raises(Cancelled):
        session.speak(find(session), request(cloned=False, num_step=40), Callbacks(told.append, check))
    assert (told[-1].done, told[-1].total) == (1, 40)
