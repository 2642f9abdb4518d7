"""F5-TTS and E2-TTS on a strict, simulated device: the samples are a plain run's, whatever streams or fails (M2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from mizuoto_runtime.conformance import conform
from mizuoto_runtime.engines.f5tts import sampler, vocos
from mizuoto_runtime.engines.f5tts.network import Network
from mizuoto_runtime.errors import Cancelled, NotEnoughMemory
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory import units
from mizuoto_runtime.memory.phase import Callbacks
from mizuoto_runtime.memory.plan import UnitCost
from mizuoto_runtime.nn import products
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Progress
from tests.engines.f5tts.conftest import audio
from tests.engines.operations import check_failing_operations
from tests.engines.streaming import (
    check_failing_allocations,
    check_packed,
    check_streaming,
    exact_size,
    simulated,
)
from tests.golden.f5tts.checkpoint import write_model, write_vocoder

RELEASED = ("v1", "base", "e2")
REFERENCE = {"length": 14_000, "seed": 31, "rate_hz": 24_000}


def finder(name: str) -> Callable[[Session], ModelFiles]:
    return lambda session: session.find("f5tts", name)


def request(steps: int = 3, **options: object) -> SpeakRequest:
    inputs = {"reference": audio(**REFERENCE), "reference_text": "So it is."}
    return SpeakRequest(text="We went home again.", seed=5, inputs=inputs, options={"nfe_step": steps, **options})


def editing() -> SpeakRequest:
    options = {"parts_to_edit": "0.1-0.2, 0.3-0.4", "part_durations": "0.2, 0.1", "nfe_step": 2}
    return SpeakRequest(text="So was it.", seed=6, inputs={"recording": audio(**REFERENCE)}, options=options)


@pytest.mark.parametrize("name", RELEASED)
def test_the_samples_are_the_same_whatever_streams(library: ModelLibrary, name: str) -> None:
    check_streaming(library, finder(name), request())


@pytest.mark.parametrize("name", ["v1", "varied-unett"])
def test_they_are_while_editing_and_unguided(library: ModelLibrary, name: str) -> None:
    for wanted in (editing(), request(cfg_strength=0.0, ode_method="midpoint")):
        settings = resolve(environment={})
        results = list(conform(settings, library, finder(name)(Session(settings, library)), wanted))
        assert len(results) == 4
        assert all(result.passed for result in results), results


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_they_are_in_every_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: torch.dtype) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 0)
    write_vocoder(tmp_path / "f5tts" / "vocos")
    write_model(tmp_path / "f5tts" / "v1", "v1", dtype=kind)
    settings, library = resolve(environment={}), ModelLibrary([tmp_path])
    files = finder("v1")(Session(settings, library))
    results = list(conform(settings, library, files, request(2)))
    assert all(result.passed for result in results), results
    check_packed(library, finder("v1"), kind)


@pytest.mark.skipif(not products.PACKED_DTYPES, reason="this CPU or torch doesn't pack")
def test_as_much_streams_where_the_plain_run_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_vocoder(tmp_path / "f5tts" / "vocos")
    write_model(tmp_path / "f5tts" / "v1", "v1", dtype=next(iter(products.PACKED_DTYPES)))
    settings, library = resolve(environment={}), ModelLibrary([tmp_path])
    files = finder("v1")(Session(settings, library))
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 1)
    monkeypatch.setattr(units, "MIN_STREAMED_BYTES", 1)
    budgets = []
    for least_bytes in (0, 1 << 30):
        monkeypatch.setattr(products, "LEAST_BYTES", least_bytes)
        budgets.append([result.budget_bytes for result in conform(settings, library, files, request(2))])
    assert budgets[0] == budgets[1]


def streamed_costs(session: Session, name: str) -> tuple[dict[str, UnitCost], Network]:
    """The transformer's units by name, and its module."""
    handle = next(each for each in session.open(finder(name)(session)).handles if each.name == "transformer")
    assert isinstance(handle.module, Network)
    return {unit.name: unit for unit in handle.costs()}, handle.module


@pytest.mark.parametrize("method", ["euler", "midpoint"])
@pytest.mark.parametrize("name", RELEASED)
def test_each_step_copies_each_unit_once(library: ModelLibrary, name: str, method: str) -> None:
    """Both halves of guidance share a copy, and what is the same for all steps is copied once for all of them."""
    copied = []
    for steps in (2, 5):
        streaming = {"compute.vram_mode": "none", "compute.simulate_vram_mb": "4096"}
        session = Session(resolve(streaming, {}), library)
        files = finder(name)(session)
        units, network = streamed_costs(session, name)
        voice = session.run_phase(files, "reference", request().inputs, {})[0]
        inputs = {"text": request().text, "voice": voice}
        (mel,) = session.run_phase(files, "sample", inputs, {"nfe_step": steps, "ode_method": method})
        copied.append(mel.reports[-1].memory.streamed_bytes)
    sizes = sizes_of(network, units)
    each_step = sum(map(sizes, network.each_step()))
    before = [*network.once(), network.input.projection, network.input.position.first]
    once = sum(map(sizes, before)) + gathered_bytes(network, voice.value.sound.frames + len(mel.value.pieces[0]))
    assert each_step > 2 * units["blocks.0"].size_bytes
    runs = 2 if method == "midpoint" else 1
    assert copied[1] - copied[0] == 3 * runs * each_step
    assert copied[0] == 2 * runs * each_step + once


def sizes_of(network: Network, units: dict[str, UnitCost]) -> Callable[[nn.Module], int]:
    """How large a unit's copy is; 0 for what is too small to stream."""
    paths = {part: path for path, part in network.named_modules()}
    return lambda part: units[paths[part]].size_bytes if paths[part] in units else 0


def gathered_bytes(network: Network, frames: int) -> int:
    """Of the text embedding's rows: one a frame, for both halves."""
    return 2 * frames * network.architecture.text_dim * 4


def test_many_steps_are_prepared_in_groups(library: ModelLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(resolve(environment={}), library)
    expected = session.speak(finder("v1")(session), request(5)).audio.samples
    monkeypatch.setattr(sampler, "GROUP", 2)
    made = session.speak(finder("v1")(session), request(5)).audio.samples
    assert (made - expected).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("name", "share", "retry", "step"),
    [("v1", "none", True, 7), ("v1", "whole", True, 3), ("e2", "halfway", False, 5), ("base", "whole", True, 4)],
)
def test_any_allocation_may_fail(library: ModelLibrary, name: str, share: str, retry: bool, step: int) -> None:
    reached = check_failing_allocations(library, finder(name), request(2), retry=retry, share=share, step=step)
    assert reached > 4


@pytest.mark.parametrize(("name", "first", "step"), [("v1", 70, 97), ("e2", 90, 131)])
def test_memory_may_run_out_in_any_operation(library: ModelLibrary, name: str, first: int, step: int) -> None:
    exact = check_failing_operations(library, finder(name), request(2), share="whole", first=first, step=step)
    assert len(exact) > 4
    assert all(exact), "where there is something to give up, one failure is always survived"


def test_a_step_that_was_taken_is_not_taken_again(library: ModelLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    session = simulated(library)
    files = finder("v1")(session)
    _, network = streamed_costs(session, "v1")
    expected = session.speak(files, request(6)).audio.samples
    ran, module = [], network.input.position.second
    inner = module.forward

    def failing(x: torch.Tensor) -> torch.Tensor:
        ran.append(1)
        if len(ran) == 4:
            raise NotEnoughMemory("simulated failure")
        y: torch.Tensor = inner(x)
        return y

    monkeypatch.setattr(module, "forward", failing)
    output = session.speak(files, request(6))
    assert torch.equal(output.audio.samples, expected)
    assert len(ran) == 7
    assert "oom_retries" in str(output.meta["applied"])


@pytest.mark.parametrize("name", ["v1", "e2"])
@pytest.mark.parametrize(("phase", "total", "done"), [("Sample", 9, 0), ("Sample", 9, 2), ("Vocoder", 1, 0)])
def test_a_cancel_is_noticed_between_layers(
    library: ModelLibrary, name: str, phase: str, total: int, done: int
) -> None:
    session = simulated(library)
    told: list[Progress] = []
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += bool(told and (told[-1].phase, told[-1].done) == (phase, done))
        if checks > 2:
            raise Cancelled("cancelled by the test")

    with pytest.raises(Cancelled):
        session.speak(finder(name)(session), request(9), Callbacks(told.append, check))
    assert (told[-1].phase, told[-1].done, told[-1].total) == (phase, done, total)


def test_the_vocoders_tiles_are_noted(library: ModelLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    session = simulated(library, oom_fallback="true")
    files = finder("v1")(session)
    expected = session.speak(files, request()).audio.samples
    module = next(each.module for each in session.open(files).handles if each.name == "vocoder")
    inner = module.forward

    def failing(mel: torch.Tensor, *check: object) -> torch.Tensor:
        if mel.shape[1] > 60:
            raise NotEnoughMemory("simulated failure")
        samples: torch.Tensor = inner(mel, *check)
        return samples

    monkeypatch.setattr(module, "forward", failing)
    monkeypatch.setattr(vocos, "TILE_FRAMES", 16)
    output = session.speak(files, request())
    assert output.meta["applied"] == {"fallbacks": ["decoding in tiles"]}
    assert "decoding in tiles was used" in str(output.meta["warnings"])
    assert (output.audio.samples - expected).abs().max() <= vocos.TILING_ERROR


def test_a_device_of_any_size_does(library: ModelLibrary) -> None:
    session = simulated(library)
    with exact_size(session, 1 << 20):
        session.speak(finder("e2")(session), request(1))
