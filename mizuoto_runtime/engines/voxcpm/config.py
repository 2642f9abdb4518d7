"""What a VoxCPM model says of itself in `config.json`, checked.

Format: the configuration classes of voxcpm 2.0.3, whose defaults stand here too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...lm.decoder import DecoderConfig
from ...weights.entries import Entry, read_entry
from .vae_config import Architecture, VaeConfig, parse_vae_config

CONFIG = "config.json"
ARCHITECTURES: tuple[Architecture, ...] = ("voxcpm", "voxcpm2")
DTYPES = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "float32": "float32",
    "fp32": "float32",
}
LAST_TOKEN = 104
"""The highest id that a prompt needs beside its text."""
MAX_VOCAB = 1 << 24
MAX_LAYERS = 512
MAX_WIDTH = 1 << 16
MAX_HEADS = 4096
MAX_POSITIONS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class VoxCpmConfig:
    """A model's sizes.

    lm, residual, encoder, dit: its four decoders. embedding_scale: what text embeddings are multiplied with. patch:
    latent frames of a step. quantizer_width, quantizer_scale: of the scalar quantization. delta_time: whether the DiT
    is told a step's length, and not always 0. max_positions: what upstream makes room for. dtype: to compute in.
    """

    architecture: Architecture
    lm: DecoderConfig
    residual: DecoderConfig
    encoder: DecoderConfig
    dit: DecoderConfig
    vocab: int
    embedding_scale: float
    residual_rope: bool
    patch: int
    latent: int
    quantizer_width: int
    quantizer_scale: int
    delta_time: bool
    max_positions: int
    dtype: str
    vae: VaeConfig

    @property
    def second(self) -> bool:
        """Whether it is of the second architecture, which takes references and descriptions."""
        return self.architecture == "voxcpm2"

    @property
    def condition_tokens(self) -> int:
        """Positions before the time's in the DiT."""
        return 2 if self.second else 0

    @property
    def dit_positions(self) -> int:
        """Of one row: conditions, time, the patch before, and the patch itself."""
        return self.condition_tokens + 1 + 2 * self.patch

    @property
    def cut_hop(self) -> int:
        """Samples that are cut off for each latent frame of context; the first architecture counts the encoder's."""
        return self.vae.output_hop if self.second else self.vae.input_hop

    @property
    def context_patches(self) -> int:
        """At most so many of a prompt's last patches are decoded before what is generated."""
        return 3 if self.second else 2


def read_config(folder: Path) -> VoxCpmConfig:
    """The description of the model in `folder`. ModelFileError names the entry that is wrong."""
    root = read_entry(folder / CONFIG)
    architecture = _architecture(root)
    second = architecture == "voxcpm2"
    patch = root.size("patch_size", 4 if second else 2, high=1024)
    latent = root.size("feat_dim", 64, high=MAX_WIDTH)
    lm = _decoder(root.entry("lm_config"))
    layers = root.size("residual_lm_num_layers", 8 if second else 6, high=MAX_LAYERS)
    dit = root.entry("dit_config")
    config = VoxCpmConfig(
        architecture=architecture,
        lm=lm,
        residual=_residual_scaled(replace(lm, layers=layers), root.entry("lm_config")),
        encoder=_local(root, "encoder_config"),
        dit=_local(root, "dit_config"),
        vocab=root.entry("lm_config").size("vocab_size", high=MAX_VOCAB),
        embedding_scale=_embedding_scale(root.entry("lm_config")),
        residual_rope=not root.flag("residual_lm_no_rope", False) if second else True,
        patch=patch,
        latent=latent,
        quantizer_width=root.size("scalar_quantization_latent_dim", 512 if second else 256, high=MAX_WIDTH),
        quantizer_scale=root.size("scalar_quantization_scale", 9, high=1 << 16),
        delta_time=(dit if second else root).flag("dit_mean_mode", False),
        max_positions=root.size("max_length", 8192 if second else 4096, high=MAX_POSITIONS),
        dtype=DTYPES[root.only("dtype", "bfloat16", *DTYPES)],
        vae=parse_vae_config(root, architecture),
    )
    _check(root, config)
    return config


def _architecture(root: Entry) -> Architecture:
    """In any letter case; the first one if nothing is said."""
    name = root.text("architecture", "voxcpm").lower()
    if name not in ARCHITECTURES:
        raise root.error("architecture", f"is {name!r}; known: {', '.join(ARCHITECTURES)}")
    return name


def _check(root: Entry, config: VoxCpmConfig) -> None:
    if config.vae.latent_dim != config.latent:
        raise root.error("feat_dim", f"is {config.latent}, the VAE's latent_dim {config.vae.latent_dim}; they differ")
    if config.vocab <= LAST_TOKEN:
        raise root.error("lm_config.vocab_size", f"is {config.vocab}; the audio tokens need more than {LAST_TOKEN}")
    if config.dit.width % 2 or config.dit.width < 4:
        raise root.error("dit_config.hidden_dim", f"is {config.dit.width}; an even number from 4 on is needed")


def _embedding_scale(lm: Entry) -> float:
    return lm.number("scale_emb", 1.0) if lm.flag("use_mup", True) else 1.0


def _residual_scaled(decoder: DecoderConfig, lm: Entry) -> DecoderConfig:
    """With the scale of what each layer adds, which depends on how many there are."""
    if not lm.flag("use_mup", True):
        return decoder
    return replace(decoder, residual_scale=lm.number("scale_depth", 1.0) / math.sqrt(decoder.layers))


def _local(root: Entry, key: str) -> DecoderConfig:
    """The local encoder or DiT: as the language model, but for its own sizes."""
    own = root.entry(key)
    sizes = {
        "hidden_size": own.size("hidden_dim", 1024, high=MAX_WIDTH),
        "intermediate_size": own.size("ffn_dim", 4096, high=MAX_WIDTH),
        "num_attention_heads": own.size("num_heads", 16, high=MAX_HEADS),
        "num_hidden_layers": own.size("num_layers", 4, high=MAX_LAYERS),
        "kv_channels": own.get("kv_channels", None),
    }
    lm = root.entry("lm_config")
    return replace(_decoder(Entry(lm.content | sizes, root.source, f"lm_config with {key}")), causal=False)


def _decoder(lm: Entry) -> DecoderConfig:
    width = lm.size("hidden_size", high=MAX_WIDTH)
    heads = lm.size("num_attention_heads", high=MAX_HEADS)
    kv_heads = lm.size("num_key_value_heads", high=MAX_HEADS)
    if heads % kv_heads:
        raise lm.error("num_attention_heads", f"is {heads}, which {kv_heads} key heads can't serve evenly")
    if not lm.has("kv_channels") and width % heads:
        raise lm.error("hidden_size", f"is {width}, which {heads} heads can't share evenly")
    head_dim = lm.size("kv_channels", width // heads, high=MAX_WIDTH)
    if head_dim % 2:
        raise lm.error("kv_channels", f"is {head_dim}; rotary positions need an even number")
    lm.only("no_rope", False, False)
    factors, scale = _positions(lm, head_dim)
    decoder = DecoderConfig(
        width=width,
        inner=lm.size("intermediate_size", high=MAX_WIDTH),
        layers=lm.size("num_hidden_layers", high=MAX_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=lm.number("rms_norm_eps", 1e-6),
        rope_theta=lm.number("rope_theta", 10_000),
        qk_norm=False,
        rope_factors=factors,
        rope_scale=scale,
    )
    return _residual_scaled(decoder, lm)


def _positions(lm: Entry, head_dim: int) -> tuple[tuple[float, ...], float]:
    """The factors of rotary frequencies, and the scale of sines: chosen once, by how many positions there may be."""
    if not lm.has("rope_scaling"):
        raise lm.error("rope_scaling", "is missing; the factors of its frequencies are needed")
    scaling = lm.entry("rope_scaling")
    most = lm.size("max_position_embeddings", high=MAX_POSITIONS)
    original = scaling.integer("original_max_position_embeddings", 2, MAX_POSITIONS)
    key = "long_factor" if most > original else "short_factor"
    factors = scaling.get(key, None)
    if not isinstance(factors, list) or len(factors) != head_dim // 2 or not all(map(_is_factor, factors)):
        raise scaling.error(key, f"must hold {head_dim // 2} numbers above 0, one for each frequency")
    square = 1 + math.log(most / original) / math.log(original)
    if square < 0:
        raise lm.error("max_position_embeddings", f"is {most:,}, too few for an original of {original:,}")
    return tuple(map(float, factors)), math.sqrt(square)


def _is_factor(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf
