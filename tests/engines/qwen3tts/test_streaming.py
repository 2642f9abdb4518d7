"""Qwen3-TTS on a strict, simulated device: the samples are a plain run's, whatever streams, whatever fails (M2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.conformance import conform
from mizuoto_runtime.engines.qwen3tts import speech
from mizuoto_runtime.engines.qwen3tts.phases import load
from mizuoto_runtime.engines.qwen3tts.spec import SPEC
from mizuoto_runtime.errors import Cancelled, NotEnoughMemory
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.loader import Loader
from mizuoto_runtime.memory.device import DeviceService
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.host import StandaloneHost
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.nn import products
from mizuoto_runtime.nn.linear import BlockedLinear
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio, Callbacks, Progress
from tests.engines.operations import check_failing_operations
from tests.engines.streaming import check_failing_allocations, check_streaming, exact_size, simulated
from tests.golden.qwen3tts.checkpoint import reference_sound, write_checkpoint
from tests.lm.captured import FakeCapturer

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


def test_the_samples_are_the_same_in_bfloat16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official dtype, with the code predictor's weights in blocks, as large ones lie on a CPU."""
    monkeypatch.setattr(products, "LEAST_BYTES", 0)
    monkeypatch.setattr(products, "BLOCKED_DTYPES", frozenset(products.BLOCKS))
    write_checkpoint(tmp_path / "qwen3tts" / PRESET, PRESET, dtype=torch.bfloat16)
    library = ModelLibrary([tmp_path])
    session = Session(resolve(environment={}), library)
    loaded = session.open(finder(PRESET)(session))
    talker = next(handle.module for handle in loaded.handles if handle.name == "talker")
    assert any(isinstance(part, BlockedLinear) for part in talker.modules())
    check_streaming(library, finder(PRESET), request(PRESET))


def test_weights_for_a_graphics_card_stay_as_they_are_stored(
    library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 0)
    files = finder(PRESET)(Session(resolve(environment={}), library))
    model = load(files, Loader(SPEC, files.ref, DeviceService(), "cuda:0"))
    assert not any(isinstance(part, BlockedLinear) for part in model.talker.module.modules())


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


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_replayed_steps_give_the_same_samples(
    library: ModelLibrary, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """CUDA graphs as far as a CPU can tell: what replays read and write, and that moved weights are noticed."""
    expected = Session(resolve(environment={}), library)
    wanted = expected.speak(finder(PRESET)(expected), request(PRESET)).audio.samples
    capturer = FakeCapturer()
    monkeypatch.setattr(PhaseContext, "cuda_graphs", True)
    monkeypatch.setattr(speech, "CudaCapturer", lambda device: capturer)
    monkeypatch.setattr(ModelHandle, "graphable", True)
    session = simulated(library)
    (talker,) = (each for each in session.open(finder(PRESET)(session)).handles if each.name == "talker")
    capturer.handle = talker
    least = talker.minimum_bytes(1)
    with exact_size(session, round(least + share * (talker.size_bytes - least)) + (24 << 20)):
        output = session.speak(finder(PRESET)(session), request(PRESET))
    assert torch.equal(output.audio.samples, wanted)
    assert capturer.captures >= 1 and capturer.replays >= 4
    assert not any("CUDA graph" in warning for warning in output.meta["warnings"])


def test_memory_may_run_out_while_a_step_is_captured(library: ModelLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Session(resolve(environment={}), library)
    wanted = expected.speak(finder(PRESET)(expected), request(PRESET)).audio.samples
    failures = iter([NotEnoughMemory("the card is full")])

    def fail_once() -> None:
        for failure in failures:
            raise failure

    monkeypatch.setattr(PhaseContext, "cuda_graphs", True)
    monkeypatch.setattr(speech, "CudaCapturer", lambda device: FakeCapturer(fail_once))
    monkeypatch.setattr(ModelHandle, "graphable", True)
    session = simulated(library)
    with exact_size(session, 64 << 20):
        output = session.speak(finder(PRESET)(session), request(PRESET))
    assert torch.equal(output.audio.samples, wanted)
    assert output.meta["applied"]["oom_retries"] == 1


def test_graphs_are_for_cuda_only_and_can_be_turned_off(library: ModelLibrary) -> None:
    for device, setting, expected in (("cuda:0", "on", True), ("cuda:0", "off", False), ("cpu", "on", False)):
        manager = Session(resolve({"compute.cuda_graphs": setting}, {}), library).manager
        manager.host = StandaloneHost(device)
        assert PhaseContext("test", manager, torch.Generator()).cuda_graphs is expected


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
