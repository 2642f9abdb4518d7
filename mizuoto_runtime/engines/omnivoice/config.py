"""What an OmniVoice model says of itself in `config.json`, checked.

Format: `OmniVoiceConfig` of omnivoice 0.2.1, whose defaults stand here too, with a Qwen3 configuration inside. What
that says of sliding windows isn't asked: upstream's own mask, by which every position sees all, takes their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...lm.decoder import ACTIVATIONS, DecoderConfig
from ...weights.entries import Entry, read_entry

CONFIG = "config.json"
LARGEST_ID = 1 << 24


@dataclass(frozen=True, kw_only=True)
class OmniVoiceConfig:
    """text_vocab: rows of the text embedding. codes: of each codebook, the mask's included; mask: the one that stands
    for a code not yet chosen. most_positions: of a prompt with its speech."""

    decoder: DecoderConfig
    text_vocab: int
    codebooks: int
    codes: int
    mask: int
    most_positions: int


def read_config(folder: Path) -> OmniVoiceConfig:
    """The description of the model in `folder`. ModelFileError names the file and the entry that is wrong."""
    root = read_entry(folder / CONFIG)
    root.only("model_type", None, "omnivoice")
    llm = root.entry("llm_config")
    llm.only("model_type", None, "qwen3")
    codes = root.integer("audio_vocab_size", 2, LARGEST_ID, 1025)
    return OmniVoiceConfig(
        decoder=_decoder(llm),
        text_vocab=llm.integer("vocab_size", 2, LARGEST_ID, 151_936),
        codebooks=root.integer("num_audio_codebook", 1, 256, 8),
        codes=codes,
        mask=root.integer("audio_mask_id", 0, codes - 1, 1024),
        most_positions=llm.integer("max_position_embeddings", 1, LARGEST_ID, 32_768),
    )


def _decoder(llm: Entry) -> DecoderConfig:
    heads = llm.integer("num_attention_heads", 1, 4096, 32)
    shared = llm.integer("num_key_value_heads", 1, 4096, heads if "num_key_value_heads" in llm.content else 32)
    if heads % shared:
        raise llm.error("num_attention_heads", f"is {heads}, which {shared} key heads can't serve evenly")
    head_dim = llm.integer("head_dim", 2, 4096, 128)
    if head_dim % 2:
        raise llm.error("head_dim", f"is {head_dim}; rotary positions need an even one")
    return DecoderConfig(
        width=llm.integer("hidden_size", 1, 1 << 20, 4096),
        inner=llm.integer("intermediate_size", 1, 1 << 20, 22_016),
        layers=llm.integer("num_hidden_layers", 1, 1024, 32),
        heads=heads,
        kv_heads=shared,
        head_dim=head_dim,
        norm_eps=llm.number("rms_norm_eps", 1e-6),
        rope_theta=_theta(llm),
        activation=llm.only("hidden_act", "silu", *ACTIVATIONS),
        attention_bias=llm.flag("attention_bias", False),
    )


def _theta(llm: Entry) -> float:
    """transformers 5 writes `rope_parameters`, 4 wrote `rope_theta` and `rope_scaling`. Scaling isn't known here."""
    for key in ("rope_parameters", "rope_scaling"):
        if llm.has(key):
            entries = llm.entry(key)
            entries.only("rope_type" if entries.has("rope_type") else "type", "default", "default")
            if entries.has("rope_theta"):
                return entries.number("rope_theta", 10_000)
    return llm.number("rope_theta", 10_000)
