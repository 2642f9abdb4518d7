"""The sizes of the codec and of the speaker encoder, as `speech_tokenizer/config.json` and `config.json` state them.

What a file leaves out has the default of qwen-tts 0.1.1 and, for the encoder, of Mimi in transformers 4.57.3. What
these modules don't compute is refused by name.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from pathlib import Path

from ...weights.entries import MAX_LAYERS, Entry, read_json

MODEL_TYPE = "qwen3_tts_tokenizer_12hz"
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish")


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """A transformer with rotary positions. window: positions that each sees, itself included; None: all before it."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    activation: str
    bias: bool
    epsilon: float
    rope_theta: float
    window: int | None


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Codes → samples. codebook_dim: width after the projection of the vectors, which are half as wide."""

    quantizers: int
    codebook_size: int
    codebook_dim: int
    latent: int
    transformer: TransformerConfig
    upsampling_ratios: tuple[int, ...]
    upsample_rates: tuple[int, ...]
    channels: int

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)

    @property
    def vector(self) -> int:
        return self.codebook_dim // 2


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Samples → codes: Mimi's encoder. used: quantizers whose codes are kept, `semantic` of them from the first book.

    replicates: convolutions repeat the edges instead of padding with zeros. shortcut: residual blocks have one.
    downsample_kernel: of the last convolution, whose stride is 2. hop_length: samples per frame.
    """

    channels: int
    width: int
    filters: int
    residual_layers: int
    ratios: tuple[int, ...]
    kernel: int
    last_kernel: int
    residual_kernel: int
    dilation_growth: int
    compress: int
    shortcut: bool
    replicates: bool
    downsample_kernel: int
    transformer: TransformerConfig
    quantizers: int
    semantic: int
    used: int
    codebook_size: int
    codebook_dim: int
    hop_length: int


@dataclass(frozen=True, kw_only=True)
class CodecConfig:
    """Both halves of the codec, and their rates."""

    decoder: DecoderConfig
    encoder: EncoderConfig
    input_rate_hz: int
    output_rate_hz: int


@dataclass(frozen=True, kw_only=True)
class SpeakerConfig:
    """An ECAPA-TDNN. channels, kernels and dilations: of the first layer, the blocks and the aggregation."""

    mel: int
    width: int
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    dilations: tuple[int, ...]
    attention: int
    scale: int
    squeeze: int
    rate_hz: int


def read_codec_config(folder: Path) -> CodecConfig:
    """The sizes in `folder`'s config.json. Raises ModelFileError, which names the file and the entry that is wrong."""
    path = folder / "config.json"
    return parse_codec_config(read_json(path), source=str(path))


def parse_codec_config(content: object, *, source: str) -> CodecConfig:
    """Check the decoded JSON of `speech_tokenizer/config.json`; `source` names it in errors."""
    root = Entry(content, source)
    kind = root.get("model_type", MODEL_TYPE)
    if kind != MODEL_TYPE:
        raise root.error("model_type", f"is {reprlib.repr(kind)}; {MODEL_TYPE!r} is needed")
    decoder = _decoder(root.entry("decoder_config"))
    encoder = _encoder(root.entry("encoder_config"), root)
    if root.size("decode_upsample_rate", decoder.hop_length) != decoder.hop_length:
        raise root.error("decode_upsample_rate", f"isn't the product of the decoder's rates, {decoder.hop_length:,}")
    if encoder.used != decoder.quantizers:
        raise root.error("encoder_valid_num_quantizers", f"is {encoder.used}, the decoder has {decoder.quantizers}")
    return CodecConfig(
        decoder=decoder,
        encoder=encoder,
        input_rate_hz=root.size("input_sample_rate", 24_000),
        output_rate_hz=root.size("output_sample_rate", 24_000),
    )


def parse_speaker_config(content: object, *, source: str) -> SpeakerConfig:
    """Check the decoded JSON of `speaker_encoder_config` in config.json; `source` names it in errors."""
    entry = Entry(content, source)
    config = SpeakerConfig(
        mel=entry.size("mel_dim", 128),
        width=entry.size("enc_dim", 1024),
        channels=entry.sizes("enc_channels", (512, 512, 512, 512, 1536)),
        kernels=entry.sizes("enc_kernel_sizes", (5, 3, 3, 3, 1)),
        dilations=entry.sizes("enc_dilations", (1, 2, 3, 4, 1)),
        attention=entry.size("enc_attention_channels", 128),
        scale=entry.size("enc_res2net_scale", 8),
        squeeze=entry.size("enc_se_channels", 128),
        rate_hz=entry.size("sample_rate", 24_000),
    )
    lengths = {len(config.channels), len(config.kernels), len(config.dilations)}
    if len(lengths) != 1 or len(config.channels) < 3:
        raise entry.error("enc_channels", "enc_kernel_sizes and enc_dilations need as many numbers, 3 at least")
    inner = config.channels[1:-1]
    if any(width % config.scale for width in inner) or len({config.channels[0], *inner}) != 1:
        raise entry.error("enc_channels", "must be the same for all blocks, and a multiple of enc_res2net_scale")
    if sum(inner) != config.channels[-1]:
        raise entry.error("enc_channels", f"must end with the sum of its blocks' channels, {sum(inner)}")
    return config


def _decoder(entry: Entry) -> DecoderConfig:
    config = DecoderConfig(
        quantizers=entry.size("num_quantizers", 16, high=MAX_LAYERS),
        codebook_size=entry.size("codebook_size", 2048),
        codebook_dim=entry.size("codebook_dim"),
        latent=entry.size("latent_dim", 1024),
        transformer=_transformer(
            entry,
            width=1024,
            heads=16,
            hidden=3072,
            activation="silu",
            epsilon="rms_norm_eps",
            window=entry.size("sliding_window", 72),
        ),
        upsampling_ratios=entry.sizes("upsampling_ratios", (2, 2)),
        upsample_rates=entry.sizes("upsample_rates", (8, 5, 4, 3)),
        channels=entry.size("decoder_dim", 1536),
    )
    if config.codebook_dim % 2 or config.quantizers < 2:
        raise entry.error("codebook_dim", "must be even, and num_quantizers 2 at least")
    if config.channels % 2 ** len(config.upsample_rates):
        stages = len(config.upsample_rates)
        raise entry.error("decoder_dim", f"is {config.channels}; {stages} stages can't halve it each")
    return config


def _encoder(entry: Entry, root: Entry) -> EncoderConfig:
    entry.only("use_causal_conv", True, True)
    entry.only("audio_channels", 1, 1)
    ratios = entry.sizes("upsampling_ratios", (8, 6, 5, 4))
    rate_hz = entry.size("sampling_rate", 24_000)
    width = entry.size("hidden_size", 512)
    quantizers = entry.size("num_quantizers", 32, high=MAX_LAYERS)
    semantic = entry.size("num_semantic_quantizers", 1, high=MAX_LAYERS)
    used = root.size("encoder_valid_num_quantizers", 16, high=MAX_LAYERS)
    vector = entry.size("vector_quantization_hidden_dimension", 256)
    if entry.size("codebook_dim", width if "codebook_dim" in entry.content else 256) != vector:
        raise entry.error("codebook_dim", f"isn't vector_quantization_hidden_dimension, {vector}")
    if not semantic < used <= quantizers:
        raise root.error("encoder_valid_num_quantizers", f"is {used}; {semantic + 1} to {quantizers} are needed")
    return EncoderConfig(
        channels=1,
        width=width,
        filters=entry.size("num_filters", 64),
        residual_layers=entry.size("num_residual_layers", 1, high=MAX_LAYERS),
        ratios=tuple(reversed(ratios)),
        kernel=entry.size("kernel_size", 7),
        last_kernel=entry.size("last_kernel_size", 3),
        residual_kernel=entry.size("residual_kernel_size", 3),
        dilation_growth=entry.size("dilation_growth_rate", 2),
        compress=entry.size("compress", 2),
        shortcut=entry.flag("use_conv_shortcut", False),
        replicates=entry.only("pad_mode", "constant", "constant", "replicate") == "replicate",
        downsample_kernel=_downsample_kernel(entry, rate_hz, math.prod(ratios)),
        transformer=_transformer(
            entry, width=512, heads=8, hidden=2048, activation="gelu", epsilon="norm_eps", window=None
        ),
        quantizers=quantizers,
        semantic=semantic,
        used=used,
        codebook_size=entry.size("codebook_size", 2048),
        codebook_dim=vector,
        hop_length=root.size("encode_downsample_rate", 1920),
    )


def _downsample_kernel(entry: Entry, rate_hz: int, ratio: int) -> int:
    """Mimi derives it from its frame rates before and after; without a difference it has no such convolution."""
    before_hz = math.ceil(rate_hz / ratio)
    stated = entry.get("frame_rate", entry.get("_frame_rate", None))
    after_hz = rate_hz / (2 * ratio) if stated is None else entry.number("frame_rate", stated)
    kernel = 2 * int(before_hz / after_hz)
    if after_hz == before_hz or kernel < 2:
        raise entry.error("frame_rate", f"is {after_hz:g}; one below {before_hz} Hz is needed")
    return kernel


def _transformer(
    entry: Entry, *, width: int, heads: int, hidden: int, activation: str, epsilon: str, window: int | None
) -> TransformerConfig:
    width = entry.size("hidden_size", width)
    heads = entry.size("num_attention_heads", heads)
    config = TransformerConfig(
        width=width,
        layers=entry.size("num_hidden_layers", 8, high=MAX_LAYERS),
        heads=heads,
        kv_heads=entry.size("num_key_value_heads", heads),
        head_width=entry.size("head_dim", max(1, width // heads)),
        hidden=entry.size("intermediate_size", hidden),
        activation=entry.only("hidden_act", activation, *ACTIVATIONS),
        bias=entry.flag("attention_bias", False),
        epsilon=entry.number(epsilon, 1e-5),
        rope_theta=entry.number("rope_theta", 10_000.0),
        window=window,
    )
    if config.heads % config.kv_heads or config.head_width % 2:
        raise entry.error("num_attention_heads", "must be a multiple of num_key_value_heads, and head_dim even")
    if entry.get("rope_scaling", None) not in (None, {"rope_type": "default"}, {"type": "default"}):
        raise entry.error("rope_scaling", "isn't computed here; null is needed")
    return config
