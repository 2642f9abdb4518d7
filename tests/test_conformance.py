"""`conformance`: the same samples whatever streams; what differs, fails or holds too much is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from devtools.voice import place_voice
from mizuoto_runtime.cli import main
from mizuoto_runtime.conformance import CaseResult, Demand, budgets, conform, device_cases
from mizuoto_runtime.engines.dummy import phases
from mizuoto_runtime.engines.registry import engine_spec
from mizuoto_runtime.errors import InputError
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.session import SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio, Callbacks

JOE = "en_US-joe-medium"
DUMMY = ["conformance", "--engine", "dummy", "--model", "tones", "--text", "ab"]
TONES = phases.tones


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return place_voice(tmp_path_factory.mktemp("voices")).parent.parent


def test_budgets_are_least_half_and_all() -> None:
    small, large = Demand(10, 40, 500), Demand(20, 100, 7)
    assert budgets([small, large], 140) == {"none": 20, "halfway": 67, "whole": 640}
    assert budgets([], 0) == {"none": 0, "halfway": 0, "whole": 0}
    needy = Demand(90, 95, 0)
    assert budgets([needy, large], 195)["halfway"] == 90, "never below what the neediest phase works with"


@pytest.mark.parametrize("fault", [{"equal": False}, {"within_budget": False}, {"left_bytes": 1}, {}])
def test_a_case_passes_only_without_any_fault(fault: dict[str, Any]) -> None:
    sound = {"equal": True, "within_budget": True, "left_bytes": 0}
    figures = {"budget_bytes": 8, "peak_bytes": 8, "streamed_mb": 0.0, "seconds": 0.0, "difference": 0.0}
    assert CaseResult(name="none", device="cpu", **figures, **(sound | fault)).passed is not bool(fault)


def test_a_real_voice_streams_exactly(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--engine", "piper", "--model", JOE, "--text", "Hi.", "--seed", "5", "--option", "sentence_silence=0.1"]
    status = main(["conformance", *flags, "--json", "--setting", f"paths.models={root}"])
    results = {result["name"]: result for result in json.loads(capsys.readouterr().out)}
    assert status == 0
    assert list(results) == ["plain", "none", "halfway", "whole"]
    assert all(result["passed"] and result["difference"] == 0 for result in results.values())
    assert results["none"]["streamed_mb"] > results["halfway"]["streamed_mb"] > results["whole"]["streamed_mb"] == 0
    for name in ("none", "halfway", "whole"):
        assert 0 < results[name]["peak_bytes"] <= results[name]["budget_bytes"]
    assert results["none"]["peak_bytes"] < results["halfway"]["peak_bytes"] < results["whole"]["peak_bytes"]


def test_limits_and_modes_stream_as_on_an_accelerator(root: Path) -> None:
    """The cases of a real device, on a simulated one that is large enough for all of the model."""
    library = ModelLibrary([root])
    settings = resolve({"compute.simulate_vram_mb": "4096"}, {})
    files = library.find(engine_spec("piper"), JOE)
    whole, none, halfway = device_cases(settings, library, files, SpeakRequest(text="Hi.", seed=5), Callbacks())
    assert [case.name for case in (whole, none, halfway)] == ["whole", "none", "halfway"]
    assert all(case.passed for case in (whole, none, halfway))
    assert none.streamed_mb > halfway.streamed_mb > whole.streamed_mb == 0
    assert halfway.budget_bytes is not None and halfway.peak_bytes is not None and none.peak_bytes is not None
    assert none.peak_bytes < halfway.peak_bytes <= halfway.budget_bytes


def test_the_table_shows_a_row_for_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(DUMMY) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[0].split()) == "case budget MB peak MB streamed MB seconds difference equal"
    assert [line.split()[0] for line in lines[1:]] == ["plain", "none", "halfway", "whole"]
    assert all(line.endswith("yes") for line in lines[1:])


def spoilt(ctx: PhaseContext, model: phases.DummyModel, **values: Any) -> Audio:
    """An engine at fault: another sound on any device but the plain CPU."""
    audio = TONES(ctx, model, **values)
    return audio if ctx.manager.device.plain else Audio(audio.samples * 1.5, audio.rate_hz)


def shortened(ctx: PhaseContext, model: phases.DummyModel, **values: Any) -> Audio:
    audio = TONES(ctx, model, **values)
    return audio if ctx.manager.device.plain else Audio(audio.samples[:, 1:], audio.rate_hz)


def broken(ctx: PhaseContext, model: phases.DummyModel, **values: Any) -> Audio:
    if not ctx.manager.device.plain:
        raise RuntimeError("a weight that isn't on the device")
    return TONES(ctx, model, **values)


KEPT: list[torch.Tensor] = []


def hoarding(ctx: PhaseContext, model: phases.DummyModel, **values: Any) -> Audio:
    if not ctx.manager.device.plain:
        KEPT.append(ctx.manager.device.allocate(8))
    return TONES(ctx, model, **values)


@pytest.mark.parametrize(
    ("fault", "difference", "message"),
    [
        (spoilt, "0.11", "NO"),
        (shortened, "-", "NO"),
        (broken, "-", "failed: a weight that isn't on the device"),
        (hoarding, "0", "8 bytes are still charged after the model was let go of"),
    ],
)
def test_a_fault_is_exit_code_1_and_shown(
    fault: Any, difference: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phases, "tones", fault)
    assert main(DUMMY) == 1
    KEPT.clear()
    shown = capsys.readouterr().out
    assert message in shown
    whole = next(line for line in shown.splitlines() if line.startswith("whole"))
    assert whole.split()[-2][:4] == difference


def test_an_error_of_the_plain_run_is_the_requests_own() -> None:
    library = ModelLibrary([])
    files = library.find(engine_spec("dummy"), "tones")
    with pytest.raises(InputError, match="empty"):
        list(conform(resolve(environment={}), library, files, SpeakRequest(text="")))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--setting", "compute.vram_mode=low"], "conformance sets compute.vram_mode itself"),
        (["--setting", "compute.simulate_vram_mb=64"], "conformance sets compute.simulate_vram_mb itself"),
        (["--option", "nois=1"], "Did you mean 'noise'"),
        (["--device", "cuda:99"], "isn't on this machine"),
        (["--text", ""], "empty"),
    ],
)
def test_bad_use_is_exit_code_2(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DUMMY, *flags]) == 2
    assert message in capsys.readouterr().err
