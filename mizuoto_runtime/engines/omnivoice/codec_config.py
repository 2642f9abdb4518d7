"""The sizes of the audio tokenizer, as `audio_tokenizer/config.json` states them (model type MODEL_TYPE).

What the file leaves out has the default of transformers 5.24.0 (`HiggsAudioV2TokenizerConfig`, `DacConfig`,
`HubertConfig`). What these modules don't compute is refused by name.
"""

from __future__ import annotations

import math
import reprlib
import sys
from dataclasses import dataclass
from pathlib import Path

from ...weights.entries import MAX_LAYERS, Entry, read_json

MODEL_TYPE = "higgs_audio_v2_tokenizer"
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish")
RATIOS = (8, 5, 4, 2)
MOST_RATE_HZ = 384_000
MOST_CHANNELS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class HubertConfig:
    """A HuBERT whose first convolution alone is normalised, and whose layers normalise after adding.

    conv_dim, conv_kernel, conv_stride: of the convolutions over samples. positional_kernel, positional_groups: of the
    convolution that stands for positions.
    """

    width: int
    layers: int
    heads: int
    hidden: int
    activation: str
    epsilon: float
    conv_dim: tuple[int, ...]
    conv_kernel: tuple[int, ...]
    conv_stride: tuple[int, ...]
    conv_bias: bool
    conv_activation: str
    projection_norm: bool
    positional_kernel: int
    positional_groups: int

    def frames(self, samples: int) -> int:
        """Frames that `samples` samples give; 0 or less: too few."""
        for kernel, stride in zip(self.conv_kernel, self.conv_stride, strict=True):
            samples = (samples - kernel) // stride + 1
        return samples


@dataclass(frozen=True, kw_only=True)
class SemanticConfig:
    """The convolutions over HuBERT's features. widths: channels after each block."""

    width: int
    kernel: int
    unit_kernel: int
    widths: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def frames(self, features: int) -> int:
        """Frames that `features` features give."""
        length = features + 2 * (self.kernel // 2) - self.kernel + 1
        for stride in self.strides:
            kernel = block_kernel(stride)
            length = (length + 2 * ((kernel - 1) // 2) - kernel) // stride + 1
        return length


def block_kernel(stride: int) -> int:
    """The kernel of the convolution that ends a block."""
    return 3 if stride == 1 else 2 * stride


@dataclass(frozen=True, kw_only=True)
class CodecConfig:
    """Both halves of the codec. encoder_channels, decoder_channels: the acoustic ones' at the rate of samples and of
    frames. width: of an acoustic frame. used: quantizers that encoding fills, all of which decoding takes.

    thinning: of HuBERT's features, the first of so many is kept.
    """

    encoder_channels: int
    downsampling: tuple[int, ...]
    decoder_channels: int
    upsampling: tuple[int, ...]
    width: int
    hubert: HubertConfig
    semantic: SemanticConfig
    quantizers: int
    used: int
    codebook_size: int
    codebook_dim: int
    rate_hz: int
    semantic_rate_hz: int
    thinning: int

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return math.prod(self.downsampling)

    @property
    def frame_rate_hz(self) -> int:
        return math.ceil(self.rate_hz / self.hop_length)

    @property
    def hidden(self) -> int:
        """Width of what is quantised: an acoustic and a semantic frame."""
        return self.width + self.semantic.width


def read_codec_config(folder: Path) -> CodecConfig:
    """The sizes in `folder`'s config.json. Raises ModelFileError, which names the file and the entry that is wrong."""
    path = folder / "config.json"
    return parse_codec_config(read_json(path), source=str(path))


def parse_codec_config(content: object, *, source: str) -> CodecConfig:
    """Check the decoded JSON of `audio_tokenizer/config.json`; `source` names it in errors."""
    root = Entry(content, source)
    kind = root.get("model_type", MODEL_TYPE)
    if kind != MODEL_TYPE:
        raise root.error("model_type", f"is {reprlib.repr(kind)}; {MODEL_TYPE!r} is needed")
    acoustic = root.entry("acoustic_model_config")
    acoustic.only("model_type", "dac", "dac")
    rate_hz = root.size("sample_rate", 24_000, high=MOST_RATE_HZ)
    downsampling, upsampling = _ratios(acoustic, rate_hz)
    hop = math.prod(downsampling)
    hubert = _hubert(root.entry("semantic_model_config"))
    quantizers, used = _quantizers(root, math.ceil(rate_hz / hop))
    semantic_rate_hz = root.size("semantic_sample_rate", 16_000, high=MOST_RATE_HZ)
    return CodecConfig(
        encoder_channels=_encoder_channels(acoustic, len(downsampling)),
        downsampling=downsampling,
        decoder_channels=_decoder_channels(acoustic, len(upsampling)),
        upsampling=upsampling,
        width=acoustic.size("hidden_size", 256),
        hubert=hubert,
        semantic=_semantic(root, hubert.width),
        quantizers=quantizers,
        used=used,
        codebook_size=root.size("codebook_size", 1024),
        codebook_dim=root.size("codebook_dim", 64),
        rate_hz=rate_hz,
        semantic_rate_hz=semantic_rate_hz,
        thinning=max(1, int(hop / (rate_hz / semantic_rate_hz) / root.size("downsample_factor", 320))),
    )


def _ratios(entry: Entry, rate_hz: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    downsampling, upsampling = entry.sizes("downsampling_ratios", RATIOS), entry.sizes("upsampling_ratios", RATIOS)
    hop = math.prod(downsampling)
    if math.prod(upsampling) != hop or hop > rate_hz:
        raise entry.error("upsampling_ratios", f"and downsampling_ratios need the same product, of {rate_hz:,} at most")
    if 1 in upsampling:
        raise entry.error("upsampling_ratios", "holds a 1, which its layers can't compute; numbers above 1 are needed")
    return downsampling, upsampling


def _encoder_channels(entry: Entry, stages: int) -> int:
    channels = entry.size("encoder_hidden_size", 64, high=MOST_CHANNELS)
    if channels << stages > MOST_CHANNELS:
        raise entry.error("encoder_hidden_size", f"is {channels}; {stages} stages can't double it")
    return channels


def _decoder_channels(entry: Entry, stages: int) -> int:
    channels = entry.size("decoder_hidden_size", 1024, high=MOST_CHANNELS)
    if channels % 2**stages:
        raise entry.error("decoder_hidden_size", f"is {channels}; {stages} stages can't halve it")
    return channels


def _quantizers(root: Entry, frame_rate_hz: int) -> tuple[int, int]:
    """How many there are, and how many of them encoding fills: both follow from the widest bandwidth, in kbit/s."""
    size = root.size("codebook_size", 1024)
    widest = root.numbers("target_bandwidths", (0.5, 1, 1.5, 2, 4))[-1]
    bits = math.log2(size)
    count = min(1000 * widest, sys.float_info.max) // (frame_rate_hz * math.ceil(bits)) if size > 1 else 0
    if not 1 <= count <= MAX_LAYERS:
        raise root.error(
            "target_bandwidths", f"ends with {widest:g}: {count:g} codebooks; 1 to {MAX_LAYERS} are needed"
        )
    return int(count), min(int(count), max(1, math.floor(widest / (bits * frame_rate_hz / 1000))))


def _semantic(root: Entry, width: int) -> SemanticConfig:
    strides = root.sizes("strides", (1, 1))
    ratios = root.sizes("channel_ratios", (1, 1))
    if len(ratios) != len(strides) or max(ratios) * width > MOST_CHANNELS or ratios[-1] != 1:
        raise root.error("channel_ratios", f"is {list(ratios)}; as many numbers as strides are needed, the last one 1")
    dilations = root.sizes("block_dilations", (1, 1))
    if len(strides) * len(dilations) > MAX_LAYERS:
        raise root.error("block_dilations", f"give {len(strides) * len(dilations):,} layers; {MAX_LAYERS} are the most")
    unit_kernel = root.size("unit_kernel_size", 3)
    if unit_kernel % 2 == 0:
        raise root.error("unit_kernel_size", f"is {unit_kernel}; its layers keep the length only with an odd number")
    return SemanticConfig(
        width=width,
        kernel=root.size("kernel_size", 3),
        unit_kernel=unit_kernel,
        widths=tuple(width * ratio for ratio in ratios),
        strides=strides,
        dilations=dilations,
    )


def _hubert(entry: Entry) -> HubertConfig:
    entry.only("model_type", "hubert", "hubert")
    entry.only("feat_extract_norm", "group", "group")
    entry.only("do_stable_layer_norm", False, False)
    entry.only("conv_pos_batch_norm", False, False)
    config = HubertConfig(
        width=entry.size("hidden_size", 768, high=MOST_CHANNELS),
        layers=entry.size("num_hidden_layers", 12, high=MAX_LAYERS),
        heads=entry.size("num_attention_heads", 12),
        hidden=entry.size("intermediate_size", 3072),
        activation=entry.only("hidden_act", "gelu", *ACTIVATIONS),
        epsilon=entry.number("layer_norm_eps", 1e-5),
        conv_dim=entry.sizes("conv_dim", (512,) * 7),
        conv_kernel=entry.sizes("conv_kernel", (10, 3, 3, 3, 3, 2, 2)),
        conv_stride=entry.sizes("conv_stride", (5, 2, 2, 2, 2, 2, 2)),
        conv_bias=entry.flag("conv_bias", False),
        conv_activation=entry.only("feat_extract_activation", "gelu", *ACTIVATIONS),
        projection_norm=entry.flag("feat_proj_layer_norm", True),
        positional_kernel=entry.size("num_conv_pos_embeddings", 128),
        positional_groups=entry.size("num_conv_pos_embedding_groups", 16),
    )
    if len({len(config.conv_dim), len(config.conv_kernel), len(config.conv_stride)}) != 1:
        raise entry.error("conv_dim", "conv_kernel and conv_stride need as many numbers")
    if config.width % config.heads or config.width % config.positional_groups:
        raise entry.error("hidden_size", "must be a multiple of num_attention_heads and num_conv_pos_embedding_groups")
    return config
