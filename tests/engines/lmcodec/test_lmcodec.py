"""A language model with a codec on a strict, simulated device: the samples never depend on what streams (M2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from mizuoto_runtime.engines.registry import BUILT_IN, Engines
from mizuoto_runtime.errors import UnknownName
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory.units import MIN_UNIT_BYTES
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from tests.engines.operations import check_failing_operations
from tests.engines.streaming import Expected, check_failing_allocations, check_streaming

ENGINES = Engines({"lmcodec": "tests.engines.lmcodec"})
LIBRARY = ModelLibrary([])
VARIANTS = ["tied", "untied-bf16"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are no work for several, which only wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def finder(variant: str) -> Callable[[Session], ModelFiles]:
    return lambda session: session.find("lmcodec", variant)


def request(seed: int = 3, text: str = "Hello there.", **options: object) -> SpeakRequest:
    return SpeakRequest(text=text, seed=seed, options=options)


def samples(variant: str = "tied", **options: object) -> torch.Tensor:
    return Expected(LIBRARY, finder(variant), request(**options), ENGINES).samples  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kv_cache", ["dynamic", "static"])
@pytest.mark.parametrize("chunk_frames", [0, 5])
def test_the_samples_are_the_same_whatever_streams(variant: str, kv_cache: str, chunk_frames: int) -> None:
    check_streaming(LIBRARY, finder(variant), request(kv_cache=kv_cache, chunk_frames=chunk_frames), ENGINES)


@pytest.mark.parametrize(
    ("share", "retry", "kv_cache", "chunk_frames", "step"),
    [
        ("none", True, "dynamic", 2, 2),
        ("none", False, "static", 2, 2),
        ("halfway", True, "static", 2, 2),
        ("halfway", False, "dynamic", 0, 3),
        ("whole", True, "dynamic", 2, 3),
        ("whole", True, "static", 0, 3),
    ],
)
def test_any_allocation_may_fail(share: str, retry: bool, kv_cache: str, chunk_frames: int, step: int) -> None:
    short = request(kv_cache=kv_cache, chunk_frames=chunk_frames, max_frames=5)
    reached = check_failing_allocations(
        LIBRARY,
        finder("tied"),
        short,
        retry=retry,
        share=share,
        step=step,
        engines=ENGINES,
        retriable=chunk_frames > 0,
    )
    assert reached > 4


@pytest.mark.parametrize(("share", "kv_cache", "first"), [("none", "dynamic", 30), ("whole", "static", 170)])
def test_memory_may_run_out_in_any_operation_and_the_step_runs_again(share: str, kv_cache: str, first: int) -> None:
    short = request(kv_cache=kv_cache, chunk_frames=2, max_frames=4)
    exact = check_failing_operations(
        LIBRARY, finder("tied"), short, share=share, first=first, step=290, engines=ENGINES
    )
    assert len(exact) > 4
    assert share != "whole" or all(exact), "where there is something to give up, one failure is always survived"


@pytest.mark.parametrize("variant", VARIANTS)
def test_neither_cache_nor_chunks_change_the_samples_but_the_seed_does(variant: str) -> None:
    expected = samples(variant)
    assert expected.std() > 0.01
    assert expected.shape[-1] > 160
    assert torch.equal(samples(variant, kv_cache="static"), expected)
    assert torch.equal(samples(variant, kv_cache="static", chunk_frames=0), expected)
    assert torch.equal(samples(variant, chunk_frames=1), expected)
    assert not torch.equal(samples(variant, seed=4), expected)
    assert not torch.equal(samples(variant, text="Hello there!"), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_part_streams(variant: str) -> None:
    session = Session(resolve(environment={}), LIBRARY, engines=ENGINES)
    talker, codec = session.open(finder(variant)(session)).handles
    units = {unit.name: unit for unit in talker.costs()}
    assert {name.partition(".")[0] for name in units} == {"conditioning", "trunk", "predictor"}
    assert all(unit.size_bytes >= MIN_UNIT_BYTES for unit in (*units.values(), *codec.costs()))
    assert units["conditioning.layers.0"].runs < units["trunk.layers.0"].runs < units["predictor.layers.0"].runs
    assert len(codec.costs()) >= 2
    head, codes = talker.module.head.weight, talker.module.codes.weight
    assert (head is codes) is (variant == "tied")


def test_a_session_knows_the_engines_that_it_was_given() -> None:
    session = Session(resolve(environment={}), LIBRARY, engines=ENGINES)
    with pytest.raises(UnknownName, match="Known: lmcodec"):
        session.find("dummy", "tones")
    with pytest.raises(UnknownName, match=r"Known: dummy, .*piper"):
        BUILT_IN.spec("lmcodec")
