"""A voice's sizes from its exported graph, and which exported weight goes to which parameter of `model`."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

from .architecture import (
    FlowConfig,
    GeneratorConfig,
    PlainDurationConfig,
    SizeError,
    StochasticDurationConfig,
    TextEncoderConfig,
    VitsConfig,
)
from .export import EMBEDDING, SPEAKERS, ExportedVoice

T = TypeVar("T")

INVERSE_SCALE = "encoder.durations.inverse_scale"
_ATTENTION = {"query": "conv_q", "key": "conv_k", "value": "conv_v", "output": "conv_o"}
_SEPARABLE = {"depthwise": "convs_sep", "pointwise": "convs_1x1"}
_NORMS = {"depthwise_norm": "norms_1", "pointwise_norm": "norms_2"}


def derive_config(voice: ExportedVoice) -> VitsConfig:
    """Read the sizes off the weights' shapes and the convolutions' attributes. Raises ModelFileError."""
    try:
        return _config(voice)
    except SizeError as error:
        raise voice.error(f"its model can't be built: {error}") from error


def _config(voice: ExportedVoice) -> VitsConfig:
    symbols = voice.dimensions(EMBEDDING, 2)[0]
    several = "sid" in voice.graph.inputs and "sid" not in voice.graph.initializers
    speakers, speaker_channels = voice.dimensions(SPEAKERS, 2) if several else (1, 0)
    latent_channels = voice.shape("enc_p.proj")[0] // 2
    return VitsConfig(
        num_symbols=symbols,
        num_speakers=speakers,
        speaker_channels=speaker_channels,
        latent_channels=latent_channels,
        text=_text(voice),
        durations=_plain_durations(voice) if voice.has("dp.conv_1") else _stochastic_durations(voice),
        flow=_flow(voice),
        generator=_generator(voice),
    )


def _text(voice: ExportedVoice) -> TextEncoderConfig:
    channels = voice.shape("enc_p.proj")[1]
    shared, offsets, head_channels = voice.dimensions("enc_p.encoder.attn_layers.0.emb_rel_k", 3)
    if shared != 1 or offsets % 2 == 0 or channels % head_channels:
        raise voice.error(f"its attention has relative keys of {[shared, offsets, head_channels]}, not supported")
    return TextEncoderConfig(
        channels=channels,
        filter_channels=voice.shape("enc_p.encoder.ffn_layers.0.conv_1")[0],
        heads=channels // head_channels,
        layers=voice.count("enc_p.encoder.attn_layers.{}.conv_q"),
        kernel_size=voice.kernel_size("enc_p.encoder.ffn_layers.0.conv_1"),
        window=offsets // 2,
    )


def _plain_durations(voice: ExportedVoice) -> PlainDurationConfig:
    return PlainDurationConfig(
        channels=voice.shape("dp.conv_1")[0],
        kernel_size=voice.kernel_size("dp.conv_1"),
    )


def _stochastic_durations(voice: ExportedVoice) -> StochasticDurationConfig:
    indices = _reversed_indices(voice, "dp.flows.{}.pre", first=3)
    outputs = voice.shape("dp.flows.3.proj")[0]
    if (outputs + 1) % 3:
        raise voice.error(f"its duration splines have {outputs} parameters; a multiple of 3, less 1, is expected")
    return StochasticDurationConfig(
        channels=voice.shape("dp.proj")[0],
        kernel_size=voice.kernel_size("dp.convs.convs_sep.0"),
        dilations=_dilations(voice, "dp.convs.convs_sep.{}"),
        flows=len(indices),
        bins=(outputs + 1) // 3,
    )


def _flow(voice: ExportedVoice) -> FlowConfig:
    indices = _reversed_indices(voice, "flow.flows.{}.pre", first=0)
    return FlowConfig(
        flows=len(indices),
        channels=voice.shape("flow.flows.0.pre")[0],
        kernel_size=voice.kernel_size("flow.flows.0.enc.in_layers.0"),
        dilations=_dilations(voice, "flow.flows.0.enc.in_layers.{}"),
    )


def _generator(voice: ExportedVoice) -> GeneratorConfig:
    paired = voice.has("dec.resblocks.0.convs1.0")
    layers = "convs1" if paired else "convs"
    rates = tuple(voice.rate(f"dec.ups.{stage}") for stage in range(voice.count("dec.ups.{}")))
    blocks = voice.count(f"dec.resblocks.{{}}.{layers}.0")
    if not rates or not blocks or blocks % len(rates):
        raise voice.error(f"its generator has {len(rates)} upsampling stages and {blocks} residual blocks")
    kernel_sizes = [voice.kernel_size(f"dec.resblocks.{block}.{layers}.0") for block in range(blocks)]
    dilations = [_dilations(voice, f"dec.resblocks.{block}.{layers}.{{}}") for block in range(blocks)]
    return GeneratorConfig(
        channels=voice.shape("dec.conv_pre")[0],
        kernel_size=voice.kernel_size("dec.conv_pre"),
        post_kernel_size=voice.kernel_size("dec.conv_post"),
        upsample_rates=rates,
        upsample_kernel_sizes=tuple(voice.shape(f"dec.ups.{stage}")[2] for stage in range(len(rates))),
        paired=paired,
        block_kernel_sizes=_repeated(voice, kernel_sizes, len(rates)),
        block_dilations=_repeated(voice, dilations, len(rates)),
    )


def _dilations(voice: ExportedVoice, pattern: str) -> tuple[int, ...]:
    return tuple(voice.dilation(pattern.format(layer)) for layer in range(voice.count(pattern)))


def _repeated(voice: ExportedVoice, values: Sequence[T], stages: int) -> tuple[T, ...]:
    first = tuple(values[: len(values) // stages])
    if tuple(values) != first * stages:
        raise voice.error(f"its generator's stages differ: {list(values)}")
    return first


def _reversed_indices(voice: ExportedVoice, pattern: str, first: int) -> list[int]:
    """The numbers of a flow's steps; the graph must run them from the last to `first`, every second one."""
    indices = voice.indices(pattern)
    if not indices or indices != list(range(first, indices[0] + 1, 2))[::-1]:
        raise voice.error(f"the steps {pattern!r} run in the order {reprlib.repr(indices)}, not by twos down to {first}")
    return indices


def weight_names(config: VitsConfig) -> Iterator[tuple[str, str]]:
    """Each parameter of `model` with the name of the exported weight that it is; INVERSE_SCALE is left out."""
    yield "encoder.text.embedding.weight", EMBEDDING
    if config.speaker_channels:
        yield "encoder.speakers.weight", SPEAKERS
    for layer in range(config.text.layers):
        yield from _text_layer(f"encoder.text.layers.{layer}", "enc_p.encoder", layer)
    yield from _convolution("encoder.text.statistics", "enc_p.proj")
    if isinstance(config.durations, StochasticDurationConfig):
        yield from _stochastic_names(config.durations)
    else:
        yield from _plain_names()
    if config.speaker_channels:
        yield from _convolution("encoder.durations.speaker", "dp.cond")
        yield from _convolution("decoder.generator.speaker", "dec.cond")
    yield from _flow_names(config.flow, bool(config.speaker_channels))
    yield from _generator_names(config.generator)


def _convolution(target: str, source: str) -> Iterator[tuple[str, str]]:
    yield f"{target}.weight", f"{source}.weight"
    yield f"{target}.bias", f"{source}.bias"


def _norm(target: str, source: str) -> Iterator[tuple[str, str]]:
    yield f"{target}.weight", f"{source}.gamma"
    yield f"{target}.bias", f"{source}.beta"


def _text_layer(target: str, source: str, layer: int) -> Iterator[tuple[str, str]]:
    for part, name in _ATTENTION.items():
        yield from _convolution(f"{target}.attention.{part}", f"{source}.attn_layers.{layer}.{name}")
    yield f"{target}.attention.relative_keys", f"{source}.attn_layers.{layer}.emb_rel_k"
    yield f"{target}.attention.relative_values", f"{source}.attn_layers.{layer}.emb_rel_v"
    yield from _norm(f"{target}.attention_norm", f"{source}.norm_layers_1.{layer}")
    yield from _convolution(f"{target}.expand", f"{source}.ffn_layers.{layer}.conv_1")
    yield from _convolution(f"{target}.contract", f"{source}.ffn_layers.{layer}.conv_2")
    yield from _norm(f"{target}.output_norm", f"{source}.norm_layers_2.{layer}")


def _stochastic_names(config: StochasticDurationConfig) -> Iterator[tuple[str, str]]:
    target, layers = "encoder.durations", len(config.dilations)
    yield from _convolution(f"{target}.input", "dp.pre")
    yield from _separable(f"{target}.stack", "dp.convs", layers)
    yield from _convolution(f"{target}.output", "dp.proj")
    yield f"{target}.mean", "dp.flows.0.m"
    for step in range(config.flows):
        coupling, source = f"{target}.couplings.{step}", f"dp.flows.{2 * (config.flows - step) + 1}"
        yield from _convolution(f"{coupling}.input", f"{source}.pre")
        yield from _separable(f"{coupling}.stack", f"{source}.convs", layers)
        yield from _convolution(f"{coupling}.output", f"{source}.proj")


def _separable(target: str, source: str, layers: int) -> Iterator[tuple[str, str]]:
    for layer in range(layers):
        for part, name in _SEPARABLE.items():
            yield from _convolution(f"{target}.{layer}.{part}", f"{source}.{name}.{layer}")
        for part, name in _NORMS.items():
            yield from _norm(f"{target}.{layer}.{part}", f"{source}.{name}.{layer}")


def _plain_names() -> Iterator[tuple[str, str]]:
    for number, part in ((1, "first"), (2, "second")):
        yield from _convolution(f"encoder.durations.{part}", f"dp.conv_{number}")
        yield from _norm(f"encoder.durations.{part}_norm", f"dp.norm_{number}")
    yield from _convolution("encoder.durations.output", "dp.proj")


def _flow_names(config: FlowConfig, several_speakers: bool) -> Iterator[tuple[str, str]]:
    for step in range(config.flows):
        target, source = f"decoder.flow.couplings.{step}", f"flow.flows.{2 * (config.flows - 1 - step)}"
        yield from _convolution(f"{target}.input", f"{source}.pre")
        for layer in range(len(config.dilations)):
            yield from _convolution(f"{target}.layers.{layer}.dilated", f"{source}.enc.in_layers.{layer}")
            yield from _convolution(f"{target}.layers.{layer}.pointwise", f"{source}.enc.res_skip_layers.{layer}")
        if several_speakers:
            yield from _convolution(f"{target}.speaker", f"{source}.enc.cond_layer")
        yield from _convolution(f"{target}.output", f"{source}.post")


def _generator_names(config: GeneratorConfig) -> Iterator[tuple[str, str]]:
    yield from _convolution("decoder.generator.input", "dec.conv_pre")
    per_stage = len(config.block_kernel_sizes)
    for stage in range(len(config.upsample_rates)):
        target = f"decoder.generator.stages.{stage}"
        yield from _convolution(f"{target}.upsample", f"dec.ups.{stage}")
        for block, dilations in enumerate(config.block_dilations):
            source = f"dec.resblocks.{stage * per_stage + block}"
            for layer in range(len(dilations)):
                name = f"{target}.blocks.{block}.layers.{layer}"
                yield from _convolution(f"{name}.dilated", f"{source}.{'convs1' if config.paired else 'convs'}.{layer}")
                if config.paired:
                    yield from _convolution(f"{name}.undilated", f"{source}.convs2.{layer}")
    yield "decoder.generator.output.weight", "dec.conv_post.weight"
