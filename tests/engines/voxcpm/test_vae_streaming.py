"""The audio VAE on a simulated, strict device: the same results, whatever streams or fails, within the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.engines.registry import Engines
from mizuoto_runtime.engines.voxcpm import vae_layers
from mizuoto_runtime.engines.voxcpm.vae_decoder import VaeDecoder
from mizuoto_runtime.engines.voxcpm.vae_encoder import VaeEncoder
from mizuoto_runtime.errors import Cancelled, InputError
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory.device import SimulatedDevice
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.session import Session, SpeakRequest
from tests.engines.operations import check_failing_operations
from tests.engines.streaming import check_failing_allocations, check_streaming
from tests.engines.voxcpm.vae_models import REAL, SMALL, SMALL_FIRST, with_random_weights
from tests.golden.voxcpm.vae.signals import exact_latents, exact_sound
from tests.memory.placed import place_within

ENGINES = Engines({"vaeonly": "tests.engines.voxcpm.vaeonly"})
LIBRARY = ModelLibrary([])
VARIANTS = ("first", "second")
FRAMES = 60
KINDS: dict[str, Any] = {"decoder": VaeDecoder, "encoder": VaeEncoder}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are no work for several, which only wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(module: Any, check: Callable[[], None] = lambda: None, frames: int = FRAMES, **options: int) -> Tensor:
    result: Tensor
    dtype = next(module.parameters()).dtype
    if isinstance(module, VaeDecoder):
        result = module.decode(exact_latents(frames, module.config.latent_dim).to(dtype), check, **options)
    else:
        result = module.encode(exact_sound(frames * module.config.input_hop - 5).to(dtype), check, **options)
    return result


def finder(variant: str) -> Callable[[Session], ModelFiles]:
    return lambda session: session.find("vaeonly", variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_samples_are_the_same_whatever_streams(variant: str) -> None:
    check_streaming(LIBRARY, finder(variant), SpeakRequest(text="3001"), ENGINES)


@pytest.mark.parametrize(("share", "retry"), [("none", True), ("halfway", False), ("whole", True)])
def test_any_allocation_may_fail(share: str, retry: bool) -> None:
    request = SpeakRequest(text="501")
    reached = check_failing_allocations(
        LIBRARY, finder("second"), request, retry=retry, share=share, step=2, engines=ENGINES
    )
    assert reached > 4


@pytest.mark.parametrize(("share", "variant"), [("none", "second"), ("whole", "first")])
def test_memory_may_run_out_in_any_operation(share: str, variant: str) -> None:
    request = SpeakRequest(text="301")
    exact = check_failing_operations(
        LIBRARY, finder(variant), request, share=share, first=30, step=149, engines=ENGINES
    )
    assert len(exact) > 4
    assert share != "whole" or all(exact), "where there is something to give up, one failure is always survived"


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_placed_apart(kind: str, share: float) -> None:
    expected = run(with_random_weights(KINDS[kind](SMALL)))
    assert expected.std() > 1e-2
    module = with_random_weights(KINDS[kind](SMALL))
    handle = ModelHandle(kind, module, "oneshot")
    least = handle.minimum_bytes(1)
    budget = round(least + share * (handle.size_bytes - least))
    device = SimulatedDevice("sim", budget, strict=True)
    place_within(budget, device, handle)
    assert torch.equal(run(module), expected)
    assert device.peak_bytes <= budget
    assert handle.whole is (share == 1.0) and (handle.streamed_bytes > 0) is (share < 1.0)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("kind", KINDS)
def test_little_of_the_real_sizes_has_to_be_on_the_device(kind: str, name: str) -> None:
    with torch.device("meta"):
        handle = ModelHandle(kind, KINDS[kind](REAL[name]), "oneshot")
    print(f"{kind} {name}: {handle.size_bytes:,} bytes, minimum {handle.minimum_bytes(1):,}")
    assert handle.size_bytes > 100e6
    assert handle.minimum_bytes(1) < 0.2 * handle.size_bytes
    assert handle.minimum_bytes(3) < 0.6 * handle.size_bytes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", [SMALL, SMALL_FIRST], ids=["depthwise", "dense"])
@pytest.mark.parametrize(("tile_frames", "elements"), [(1, 1 << 18), (5, 1000), (11, 1)])
def test_tiles_change_nothing(
    kind: str, config: Any, tile_frames: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, so that only the order of sums is let pass."""
    module = with_random_weights(KINDS[kind](config)).double()
    monkeypatch.setattr(vae_layers, "TILE_ELEMENTS", 1 << 30)
    expected = run(module, frames=12, tile_frames=1 << 20)
    monkeypatch.setattr(vae_layers, "TILE_ELEMENTS", elements)
    tiled = run(module, frames=12, tile_frames=tile_frames)
    assert expected.std() > 0.1
    torch.testing.assert_close(tiled, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_follows_from_nothing_later(kind: str) -> None:
    """Causal: a longer input begins with what a shorter one gives."""
    module = with_random_weights(KINDS[kind](SMALL))
    if kind == "decoder":
        latents = exact_latents(30, SMALL.latent_dim)
        short, long = module.decode(latents[:20]), module.decode(latents)
    else:
        sound = exact_sound(30 * SMALL.input_hop)
        short, long = module.encode(sound[: 20 * SMALL.input_hop]), module.encode(sound)
    torch.testing.assert_close(long[: len(short)], short, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_cancelling_is_noticed_within_a_tile(kind: str) -> None:
    module = with_random_weights(KINDS[kind](SMALL))
    calls = 0

    def check(last: int) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Cancelled("enough")

    run(module, lambda: check(0), tile_frames=10)
    total, calls = calls, 0
    assert total >= 6 * 5
    for last in (1, total // 2, total):
        calls = 0
        with pytest.raises(Cancelled):
            run(module, lambda last=last: check(last), tile_frames=10)


@pytest.mark.parametrize("config", [SMALL, SMALL_FIRST], ids=["second", "first"])
def test_nothing_gives_nothing(config: Any) -> None:
    decoder, encoder = with_random_weights(VaeDecoder(config)), with_random_weights(VaeEncoder(config))
    assert decoder.decode(torch.zeros(0, config.latent_dim)).shape == (0,)
    assert encoder.encode(torch.zeros(0)).shape == (0, config.latent_dim)
    assert encoder.encode(torch.zeros(1)).shape == (1, config.latent_dim)


def test_other_shapes_are_refused() -> None:
    decoder, encoder = with_random_weights(VaeDecoder(SMALL)), with_random_weights(VaeEncoder(SMALL))
    for latents in (torch.zeros(1, 3, 16), torch.zeros(3, 15), torch.zeros(3, 16, dtype=torch.float16)):
        with pytest.raises(InputError, match=r"\(frames, 16\) torch.float32 is needed"):
            decoder.decode(latents)
    for samples in (torch.zeros(1, 3), torch.zeros(3, dtype=torch.int16)):
        with pytest.raises(InputError, match=r"\(length\) torch.float32 is needed"):
            encoder.encode(samples)
