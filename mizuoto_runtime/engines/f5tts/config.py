"""What an F5-TTS or E2-TTS model is built of: what its `arch.json` says, else what its tensors and its name tell.

Keys and their defaults: the constructors of `DiT` and `UNetT` in f5-tts 1.1.22, as its `configs/*.yaml` fill them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import ModelFileError
from ...weights.entries import MAX_SIZE, Entry, read_entry

Backbone = Literal["DiT", "UNetT"]
MelKind = Literal["vocos", "bigvgan"]
SkipKind = Literal["concat", "add", "none"]
Shapes = Mapping[str, Sequence[int]]
"""Names in a checkpoint, without prefixes, and the shapes of the tensors."""

ARCHITECTURE_FILE = "arch.json"
RATE_HZ = 24_000
HOP = 256
WINDOW = 1024
MEL_BANDS = 100
CONV_GROUPS = 16
OLD_MEL_BUFFERS = ("mel_spec.mel_stft.mel_scale.fb", "mel_spec.mel_stft.spectrogram.window")
"""Released before March 2025: checkpoints of the first F5-TTS and of E2-TTS have them, those of v1 don't."""

_TRAINING_ONLY = ("dropout", "checkpoint_activations")
_OUTER = ("name", "tokenizer", "tokenizer_path", "vocoder", "backbone", "arch", "mel_spec", "mel_spec_type")
_BOTH = (
    "dim",
    "depth",
    "heads",
    "dim_head",
    "ff_mult",
    "mel_dim",
    "text_num_embeds",
    "text_dim",
    "text_mask_padding",
    "qk_norm",
    "conv_layers",
    "pe_attn_head",
    "attn_backend",
    "attn_mask_enabled",
    *_TRAINING_ONLY,
)
_KEYS: dict[str, tuple[str, ...]] = {
    "DiT": (*_BOTH, "text_embedding_average_upsampling", "long_skip_connection"),
    "UNetT": (*_BOTH, "skip_connect_type"),
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A transformer's sizes and ways, under upstream's names.

    pe_attn_head: so many of the first heads know positions; None: all. mel_dim: mel bands. mlp: width inside an MLP.
    """

    backbone: Backbone
    dim: int
    depth: int
    heads: int
    dim_head: int
    mlp: int
    mel_dim: int
    text_dim: int
    conv_layers: int
    text_mask_padding: bool
    text_embedding_average_upsampling: bool = False
    qk_norm: bool = False
    pe_attn_head: int | None = None
    attn_mask_enabled: bool = False
    long_skip_connection: bool = False
    skip_connect_type: SkipKind = "concat"
    mel_spec_type: MelKind = "vocos"

    @property
    def inner(self) -> int:
        """Width of the queries of all heads."""
        return self.heads * self.dim_head


def read_architecture(folder: Path, weights: Path, shapes: Shapes) -> Architecture:
    """The architecture of the model in `folder` whose checkpoint `weights` holds tensors of `shapes`.

    ModelFileError if the tensors are of no such model, or `arch.json` says what can't be built.
    """
    described = folder / ARCHITECTURE_FILE
    backbone = _backbone(weights, shapes)
    if described.is_file():
        return parse_architecture(read_entry(described), backbone)
    return released_architecture(weights, shapes, backbone)


def _backbone(weights: Path, shapes: Shapes) -> Backbone:
    if any(name.startswith("transformer.transformer_blocks.") for name in shapes):
        return "DiT"
    if any(name.startswith("transformer.layers.") for name in shapes):
        return "UNetT"
    raise ModelFileError(f"{weights}: holds neither F5-TTS's nor E2-TTS's weights; download the model again")


def parse_architecture(root: Entry, backbone: Backbone) -> Architecture:
    """The architecture that `root` describes: upstream's keys at the top, below `arch`, or below `model` and `arch`."""
    if root.has("model") and isinstance(root.content["model"], dict):
        root = root.entry("model")
    root.only("backbone", backbone, backbone)
    entry = root.entry("arch") if root.has("arch") else root
    known = {*_KEYS[backbone], *(_OUTER if entry is root else ())}
    unknown = sorted(entry.content.keys() - known)
    if unknown:
        raise entry.error(unknown[0], f"is unknown; a {backbone} has {', '.join(_KEYS[backbone])}")
    entry.only("attn_backend", "torch", "torch", "flash_attn")
    dim, heads = entry.size("dim"), entry.size("heads", 8)
    mel_dim = entry.size("mel_dim", MEL_BANDS)
    architecture = Architecture(
        backbone=backbone,
        dim=dim,
        depth=entry.integer("depth", 1, 1024, 8),
        heads=heads,
        dim_head=entry.size("dim_head", 64),
        mlp=_mlp(entry, dim),
        mel_dim=mel_dim,
        text_dim=entry.size("text_dim", mel_dim),
        conv_layers=entry.integer("conv_layers", 0, 1024, 0),
        text_mask_padding=entry.flag("text_mask_padding", True),
        text_embedding_average_upsampling=entry.flag("text_embedding_average_upsampling", False),
        qk_norm=entry.only("qk_norm", None, None, "rms_norm") is not None,
        pe_attn_head=entry.integer("pe_attn_head", 0, 1 << 20) if entry.has("pe_attn_head") else None,
        attn_mask_enabled=entry.flag("attn_mask_enabled", False),
        long_skip_connection=entry.flag("long_skip_connection", False),
        skip_connect_type=entry.only("skip_connect_type", "concat", "concat", "add", "none"),
        mel_spec_type=_mel_kind(root),
    )
    _check(entry, architecture)
    return architecture


def _mlp(entry: Entry, dim: int) -> int:
    """An MLP's width: so many times the transformer's."""
    factor = entry.number("ff_mult", 4)
    if not 1 <= dim * factor <= MAX_SIZE:
        raise entry.error("ff_mult", f"is {factor:g}; times {dim} it must be 1 to {MAX_SIZE:,}")
    return int(dim * factor)


def _mel_kind(root: Entry) -> MelKind:
    mel = root.entry("mel_spec") if root.has("mel_spec") else root
    if mel is not root:
        for name, value in (
            ("target_sample_rate", RATE_HZ), ("n_mel_channels", MEL_BANDS), ("hop_length", HOP),
            ("win_length", WINDOW), ("n_fft", WINDOW),
        ):  # fmt: skip
            mel.only(name, value, value)
    kind: MelKind = mel.only("mel_spec_type", "vocos", "vocos", "bigvgan")
    return kind


def _check(entry: Entry, architecture: Architecture) -> None:
    if architecture.dim % CONV_GROUPS:
        raise entry.error("dim", f"is {architecture.dim}; a multiple of {CONV_GROUPS} is needed")
    if architecture.dim_head % 2:
        raise entry.error("dim_head", f"is {architecture.dim_head}; an even number is needed")
    if architecture.conv_layers and architecture.text_dim % 2:
        raise entry.error("text_dim", f"is {architecture.text_dim}; with conv_layers an even number is needed")
    if architecture.backbone == "UNetT" and architecture.depth % 2:
        raise entry.error("depth", f"is {architecture.depth}; a UNetT's is even")
    if architecture.text_embedding_average_upsampling and not architecture.text_mask_padding:
        raise entry.error("text_embedding_average_upsampling", "needs text_mask_padding")


def released_architecture(weights: Path, shapes: Shapes, backbone: Backbone) -> Architecture:
    """The architecture of a released checkpoint. Sizes stand in its tensors.

    The first F5-TTS and v1 have equal ones. They are told apart by the buffers that the first one's file holds, else
    by the names of the file and its folder; what neither tells is v1.
    """
    blocks = "transformer_blocks" if backbone == "DiT" else "layers"
    attention, mlp = (f"{blocks}.0.attn", f"{blocks}.0.ff") if backbone == "DiT" else (f"{blocks}.0.2", f"{blocks}.0.4")

    def size(name: str, axis: int = 0) -> int:
        if f"transformer.{name}" not in shapes or len(shapes[f"transformer.{name}"]) <= axis:
            raise ModelFileError(f"{weights}: lacks the weight {name!r}; download the file again, or add arch.json")
        return shapes[f"transformer.{name}"][axis]

    dim_head = 2 * size("rotary_embed.inv_freq")
    text_dim = size("text_embed.text_embed.weight", 1)
    v1 = backbone == "DiT" and _is_v1(weights, shapes)
    return Architecture(
        backbone=backbone,
        dim=size("proj_out.weight", 1),
        depth=_count(shapes, blocks),
        heads=size(f"{attention}.to_q.weight") // dim_head,
        dim_head=dim_head,
        mlp=size(f"{mlp}.ff.0.0.weight"),
        mel_dim=size("proj_out.weight"),
        text_dim=text_dim,
        conv_layers=_count(shapes, "text_embed.text_blocks"),
        text_mask_padding=v1,
        qk_norm=f"transformer.{attention}.q_norm.weight" in shapes,
        pe_attn_head=None if v1 else 1,
        long_skip_connection="transformer.long_skip_connection.weight" in shapes,
        mel_spec_type="bigvgan" if "bigvgan" in _names(weights) else "vocos",
    )


def _is_v1(weights: Path, shapes: Shapes) -> bool:
    if any(name in shapes for name in OLD_MEL_BUFFERS):
        return False
    names = _names(weights)
    return "v1" in names or not re.search(r"f5[-_]?tts[-_]?(base|small)|bigvgan|model_1200000\b", names)


def _names(weights: Path) -> str:
    return f"{weights.parent.name}/{weights.name}".lower()


def _count(shapes: Shapes, prefix: str) -> int:
    """How many numbered modules there are under `prefix`."""
    pattern = re.compile(rf"transformer\.{re.escape(prefix)}\.(\d+)\.")
    return 1 + max((int(found[1]) for found in map(pattern.match, shapes) if found), default=-1)
