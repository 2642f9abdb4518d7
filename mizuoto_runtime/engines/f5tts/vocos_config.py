"""What a Vocos model says of itself in `config.yaml`, checked. Format: vocos 0.1.0, which builds what it names."""

from __future__ import annotations

from pathlib import Path

from ...errors import MissingDependency, ModelFileError
from ...weights.entries import MAX_CONFIG_BYTES, Entry, check_size
from .config import HOP, RATE_HZ
from .vocos import VocosConfig

CONFIG = "config.yaml"
FEATURES = "vocos.feature_extractors.MelSpectrogramFeatures"
BACKBONE = "vocos.models.VocosBackbone"
HEAD = "vocos.heads.ISTFTHead"


def read_vocos_config(folder: Path) -> VocosConfig:
    """The sizes of the vocoder in `folder`. ModelFileError names the entry that is wrong."""
    path = folder / CONFIG
    root = Entry(_read_yaml(path), str(path))
    features = _arguments(root, "feature_extractor", FEATURES)
    backbone = _arguments(root, "backbone", BACKBONE)
    head = _arguments(root, "head", HEAD)
    if backbone.has("adanorm_num_embeddings"):
        raise backbone.error("adanorm_num_embeddings", "is set; a vocoder of mel spectrograms has none")
    layers = backbone.integer("num_layers", 1, 1024)
    width = backbone.size("dim")
    head.only("dim", width, width)
    hop = head.only("hop_length", None, HOP)
    window = head.size("n_fft")
    if window % 2 or window < hop:
        raise head.error("n_fft", f"is {window}; an even number from {hop} on is needed")
    scale = backbone.content.get("layer_scale_init_value")
    return VocosConfig(
        mel=backbone.size("input_channels"),
        width=width,
        inner=backbone.size("intermediate_dim"),
        layers=layers,
        scaled=not isinstance(scale, (int, float)) or scale >= 0,
        window=window,
        hop=hop,
        padding=head.only("padding", "same", "center", "same"),
        rate_hz=features.only("sample_rate", RATE_HZ, RATE_HZ),
    )


def _arguments(root: Entry, part: str, known: str) -> Entry:
    entry = root.entry(part)
    entry.only("class_path", None, known)
    return entry.entry("init_args")


def _read_yaml(path: Path) -> object:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependency("the package PyYAML isn't installed: pip install pyyaml") from error
    try:
        check_size(path, MAX_CONFIG_BYTES)
        return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read: {error.strerror or error}; download it again") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not valid YAML ({error}); download it again") from error
