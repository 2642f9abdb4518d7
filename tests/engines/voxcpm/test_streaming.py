"""VoxCPM on a strict, simulated device: the samples are a plain run's, whatever streams or fails (M2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.conformance import conform
from mizuoto_runtime.errors import Cancelled
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory import units
from mizuoto_runtime.nn import products
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Callbacks, Progress
from tests.engines.operations import check_failing_operations
from tests.engines.streaming import check_failing_allocations, check_packed, check_streaming, exact_size, simulated
from tests.engines.voxcpm.conftest import audio
from tests.golden.voxcpm.cases import CONFIGS
from tests.golden.voxcpm.checkpoint import write_checkpoint

SOUND = {"length": 700, "seed": 31, "rate_hz": 16_000}


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers this small would be fixed."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 1 << 10)
    monkeypatch.setattr(units, "MIN_STREAMED_BYTES", 1 << 10)


def finder(name: str) -> Callable[[Session], ModelFiles]:
    return lambda session: session.find("voxcpm", name)


def request(name: str, patches: int = 5, **options: object) -> SpeakRequest:
    """A reference if the model takes one, and a prompt."""
    inputs: dict[str, object] = {"prompt": audio(**SOUND), "prompt_text": "It was"}
    if name.startswith("v2"):
        inputs["reference"] = audio(**SOUND | {"seed": 32})
    how = {"min_len": patches, "max_len": patches, "inference_timesteps": 4, **options}
    return SpeakRequest(text="late. 今天", seed=5, inputs=inputs, options=how)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_samples_are_the_same_whatever_streams(library: ModelLibrary, name: str) -> None:
    check_streaming(library, finder(name), request(name))


@pytest.mark.parametrize(("name", "kind"), [("v2", "static"), ("v0.5", "dynamic")])
def test_they_are_when_the_prompt_is_gone_back_to(library: ModelLibrary, name: str, kind: str) -> None:
    again = request(name, 11, retry_badcase=True, retry_badcase_ratio_threshold=1.0, retry_badcase_max_times=3)
    settings = resolve({"compute.kv_cache": kind}, {})
    session = Session(settings, library)
    assert session.speak(finder(name)(session), again).meta["applied"]["retried"] == 2  # type: ignore[index]
    results = list(conform(settings, library, finder(name)(session), again))
    assert all(result.passed for result in results), results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_they_are_in_every_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 0)
    write_checkpoint(tmp_path / "voxcpm" / "v2", "v2", dtype=dtype)
    settings, library = resolve(environment={}), ModelLibrary([tmp_path])
    files = finder("v2")(Session(settings, library))
    results = list(conform(settings, library, files, request("v2")))
    assert all(result.passed for result in results), results
    check_packed(library, finder("v2"), dtype)


def test_they_are_with_either_kind_of_cache(library: ModelLibrary) -> None:
    made = []
    for kind in ("dynamic", "static"):
        session = Session(resolve({"compute.kv_cache": kind}, {}), library)
        made.append(session.speak(finder("v2")(session), request("v2", 12)).audio.samples)
    assert torch.equal(*made)
    assert made[0].std() > 1e-3


@pytest.mark.parametrize(
    ("name", "share", "retry", "step"),
    [("v2", "none", True, 11), ("v0.5", "whole", True, 3), ("v1.5", "halfway", False, 9)],
)
def test_any_allocation_may_fail(library: ModelLibrary, name: str, share: str, retry: bool, step: int) -> None:
    reached = check_failing_allocations(library, finder(name), request(name, 3), retry=retry, share=share, step=step)
    assert reached > 4


@pytest.mark.parametrize(("name", "first", "step"), [("v2", 40, 947), ("v1.5", 90, 787)])
def test_memory_may_run_out_in_any_operation(library: ModelLibrary, name: str, first: int, step: int) -> None:
    exact = check_failing_operations(library, finder(name), request(name, 3), share="whole", first=first, step=step)
    assert len(exact) > 3
    assert all(exact), "where there is something to give up, one failure is always survived"


def test_local_encoder_and_dit_stay_first_and_the_text_is_gathered(library: ModelLibrary) -> None:
    session = simulated(library)
    handles = {handle.name: handle for handle in session.open(finder("v2")(session)).handles}
    runs = {unit.name: unit.runs for unit in handles["model"].costs()}
    assert runs["base_lm.embed_tokens"] < runs["base_lm.layers.0"] == runs["residual_lm.layers.0"]
    assert runs["base_lm.layers.0"] < runs["feat_encoder.encoder.layers.0"]
    assert runs["feat_decoder.decoder.layers.2"] == runs["feat_encoder.encoder.layers.0"]


def test_a_cancel_is_noticed_within_one_patch(library: ModelLibrary) -> None:
    session = simulated(library)
    told: list[Progress] = []
    checks = 0

    def check() -> None:
        nonlocal checks
        if told and told[-1].done >= 2:
            checks += 1
            if checks > 1:
                raise Cancelled("cancelled by the test")

    with pytest.raises(Cancelled), exact_size(session, 64 << 20):
        session.speak(finder("v2")(session), request("v2", 40), Callbacks(told.append, check))
    assert told[-1].done == 2
    assert told[-1].total > 2
