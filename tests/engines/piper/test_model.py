"""The model's own rules, on small random weights: what it refuses, what it leaves alone, how it may be placed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from mizuoto_runtime.engines.piper.architecture import (
    FlowConfig,
    GeneratorConfig,
    StochasticDurationConfig,
    TextEncoderConfig,
    VitsConfig,
)
from mizuoto_runtime.engines.piper.durations import invert_spline
from mizuoto_runtime.engines.piper.layers import Conv, Upsample, channels_last
from mizuoto_runtime.engines.piper.model import MAX_FRAMES, VoiceDecoder, VoiceEncoder
from mizuoto_runtime.errors import InputError, ModelFileError

CONFIG = VitsConfig(
    num_symbols=20,
    num_speakers=3,
    speaker_channels=6,
    latent_channels=8,
    text=TextEncoderConfig(channels=12, filter_channels=20, heads=2, layers=2, kernel_size=3, window=4),
    durations=StochasticDurationConfig(channels=12, kernel_size=3, dilations=(1, 3, 9), flows=3, bins=10),
    flow=FlowConfig(flows=4, channels=12, kernel_size=5, dilations=(1, 1, 1, 1)),
    generator=GeneratorConfig(
        channels=16,
        kernel_size=7,
        post_kernel_size=7,
        upsample_rates=(8, 8, 4),
        upsample_kernel_sizes=(16, 16, 8),
        paired=False,
        block_kernel_sizes=(3, 5, 7),
        block_dilations=((1, 2), (2, 6), (3, 12)),
    ),
)


def filled(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(5)
    for parameter in module.parameters():
        parameter.data.normal_(0, 0.2, generator=generator)
    return module.eval()


@pytest.fixture
def encoder() -> VoiceEncoder:
    return filled(VoiceEncoder(CONFIG))


def encode(encoder: VoiceEncoder, ids: torch.Tensor, *, length_scale: float = 1.0, speaker_id: int | None = 0) -> None:
    encoder(ids, noise=torch.zeros(1, 2, ids.shape[-1]), noise_w=0.0, length_scale=length_scale, speaker_id=speaker_id)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[1, 20]]), "go from 1 to 20; this voice has 0 to 19"),
        (torch.tensor([[-1, 3]]), "go from -1 to 3"),
        (torch.zeros(1, 0, dtype=torch.int64), "at least 1"),
        (torch.zeros(2, 3, dtype=torch.int64), r"the shape \(2, 3\)"),
    ],
)
def test_ids_that_the_voice_lacks_are_refused(encoder: VoiceEncoder, ids: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode(encoder, ids)


@pytest.mark.parametrize("speaker_id", [None, -1, 3])
def test_unknown_speakers_are_refused(encoder: VoiceEncoder, speaker_id: int | None) -> None:
    with pytest.raises(InputError, match="speakers 0 to 2"):
        encode(encoder, torch.tensor([[1, 2]]), speaker_id=speaker_id)


@pytest.mark.parametrize("length_scale", [1e9, math.inf])
def test_endless_sentences_are_refused(encoder: VoiceEncoder, length_scale: float) -> None:
    with pytest.raises(InputError, match=f"{MAX_FRAMES:,} are the most"):
        encode(encoder, torch.tensor([[1, 2]]), length_scale=length_scale)


def test_weights_that_are_no_numbers_are_named(encoder: VoiceEncoder) -> None:
    encoder.durations.input.weight.data.fill_(math.nan)
    with pytest.raises(ModelFileError, match="not numbers"):
        encode(encoder, torch.tensor([[1, 2]]))


def test_nothing_global_is_touched(encoder: VoiceEncoder) -> None:
    before = torch.get_rng_state(), torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    encode(encoder, torch.tensor([[1, 2, 3]]))
    after = torch.get_rng_state(), torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_results_are_ordinary_tensors(encoder: VoiceEncoder) -> None:
    ids = torch.tensor([[1, 2, 3]])
    encoded = encoder(ids, noise=torch.zeros(1, 2, 3), noise_w=0.0, length_scale=1.0, speaker_id=1)
    for tensor in (encoded.mean, encoded.log_scale, encoded.durations, encoded.speaker):
        assert not tensor.is_inference() and not tensor.requires_grad


def test_noise_of_the_wrong_length_is_no_silent_result(encoder: VoiceEncoder) -> None:
    with pytest.raises(RuntimeError):
        encoder(torch.tensor([[1, 2, 3]]), noise=torch.zeros(1, 2, 4), noise_w=1.0, length_scale=1.0, speaker_id=0)


def test_streamed_weights_are_only_read_inside_their_own_forward() -> None:
    """What streaming does: the weights of a convolution are there only while its forward runs."""
    encoder, decoder = filled(VoiceEncoder(CONFIG)), filled(VoiceDecoder(CONFIG))
    ids, noise = torch.arange(9)[None], torch.ones(1, 2, 9)

    def run() -> torch.Tensor:
        encoded = encoder(ids, noise=noise, noise_w=0.5, length_scale=1.0, speaker_id=2)
        return decoder(encoded, noise=torch.ones(1, 8, encoded.length_frames), noise_scale=0.5)

    resident = run()
    entered = 0
    for module in [*encoder.modules(), *decoder.modules()]:
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.ConvTranspose1d)):
            kept = {name: parameter.data for name, parameter in module.named_parameters()}
            for parameter in module.parameters():
                parameter.data = torch.empty(0)

            def fetch(module: nn.Module, inputs: object, kept: dict[str, torch.Tensor] = kept) -> None:
                nonlocal entered
                entered += 1
                for name, parameter in module.named_parameters():
                    parameter.data = kept[name]

            def drop(module: nn.Module, inputs: object, output: object) -> None:
                for parameter in module.parameters():
                    parameter.data = torch.empty(0)

            module.register_forward_pre_hook(fetch)
            module.register_forward_hook(drop)
    assert torch.equal(run(), resident)
    assert entered > 100


@pytest.mark.parametrize("length", [1, 5, 256, 257, 400])
@pytest.mark.parametrize(("kernel_size", "dilation", "groups"), [(1, 1, 1), (3, 1, 1), (7, 12, 1), (3, 9, 6)])
def test_convolutions_equal_torchs_own(length: int, kernel_size: int, dilation: int, groups: int) -> None:
    conv = filled(Conv(6, 12, kernel_size, dilation=dilation, groups=groups))
    x = torch.randn(1, 6, length, generator=torch.Generator().manual_seed(0))
    padding = dilation * (kernel_size - 1) // 2
    expected = functional.conv1d(x, conv.weight, conv.bias, padding=padding, dilation=dilation, groups=groups)
    got = conv(channels_last(x))
    assert got.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(got[:, :, 0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kernel_size", "rate"), [(16, 8), (8, 4), (4, 2), (4, 4)])
def test_upsampling_equals_torchs_own(kernel_size: int, rate: int) -> None:
    upsample = filled(Upsample(6, 4, kernel_size, rate))
    x = torch.randn(1, 6, 33, generator=torch.Generator().manual_seed(0))
    padding = (kernel_size - rate) // 2
    expected = functional.conv_transpose1d(x, upsample.weight, upsample.bias, stride=rate, padding=padding)
    got = upsample(channels_last(x))
    assert got.shape[3] == 33 * rate
    torch.testing.assert_close(got[:, :, 0], expected, atol=1e-5, rtol=0)


def test_the_spline_is_inverted() -> None:
    generator = torch.Generator().manual_seed(2)
    count, bins = 200, 10
    widths, heights = (torch.randn(count, bins, generator=generator, dtype=torch.float64) for _ in range(2))
    slopes = torch.randn(count, bins - 1, generator=generator, dtype=torch.float64)
    y = torch.linspace(-7, 7, count, dtype=torch.float64)
    x = invert_spline(y, widths, heights, slopes)
    outside = y.abs() > 5
    assert torch.equal(x[outside], y[outside])
    torch.testing.assert_close(spline(x, widths, heights, slopes)[~outside], y[~outside], atol=1e-8, rtol=0)


def spline(x: torch.Tensor, widths: torch.Tensor, heights: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """The rational-quadratic spline of Durkan et al., equation 4, one value at a time."""
    results = []
    for value, width, height, slope in zip(x, widths, heights, slopes, strict=True):
        knots = []
        for raw in (width, height):
            sizes = 1e-3 + (1 - 1e-3 * len(raw)) * torch.softmax(raw, 0)
            knots.append(torch.cat([torch.zeros(1, dtype=raw.dtype), sizes.cumsum(0)]) * 10 - 5)
        one = torch.ones(1, dtype=slope.dtype)
        derivatives = torch.cat([one, 1e-3 + functional.softplus(slope), one])
        index = int((value >= knots[0][1:-1]).sum())
        (x0, x1), (y0, y1) = (each[index : index + 2] for each in knots)
        d0, d1, s = derivatives[index], derivatives[index + 1], (y1 - y0) / (x1 - x0)
        t = (value - x0) / (x1 - x0)
        results.append(y0 + (y1 - y0) * (s * t**2 + d0 * t * (1 - t)) / (s + (d1 + d0 - 2 * s) * t * (1 - t)))
    return torch.stack(results)


def test_sizes_survive_json() -> None:
    assert VitsConfig.from_json(CONFIG.to_json()) == CONFIG
