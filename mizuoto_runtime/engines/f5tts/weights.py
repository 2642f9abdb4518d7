"""Loads an F5-TTS or E2-TTS model and its vocoder: official files → modules, strictly, mapped where they can be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from ...errors import ModelFileError, ModelNotFound
from ...library import LEVELS_AROUND
from ...weights.stored import Stored
from .checkpoint import fill, opened, stored_dtype
from .config import ARCHITECTURE_FILE, Architecture, Backbone, read_architecture
from .dit import Dit
from .network import Network
from .spec import VOCABULARY, VOCODER_FOLDERS
from .text import Vocabulary, read_vocabulary
from .unett import UnetT
from .vocos import Vocos
from .vocos_config import CONFIG, read_vocos_config

VOCODER_WEIGHTS = "pytorch_model.bin"
KINDS: dict[Backbone, type[Network]] = {"DiT": Dit, "UNetT": UnetT}
_COMMON = (
    (r"^time_embed\.time_mlp\.0\.", "time.first."),
    (r"^time_embed\.time_mlp\.2\.", "time.second."),
    (r"^text_embed\.text_embed\.", "text.tokens."),
    (r"^text_embed\.text_blocks\.", "text.blocks."),
    (r"^input_embed\.proj\.", "input.projection."),
    (r"^input_embed\.conv_pos_embed\.conv1d\.0\.", "input.position.first."),
    (r"^input_embed\.conv_pos_embed\.conv1d\.2\.", "input.position.second."),
    (r"^rotary_embed\.inv_freq$", "frequencies"),
    (r"^proj_out\.", "output."),
    (r"\.dwconv\.", ".depthwise."),
    (r"\.pwconv1\.", ".widen."),
    (r"\.pwconv2\.", ".narrow."),
    (r"\.grn\.", ".response."),
)
_LAYER = (
    (r"\.to_q\.", ".queries."),
    (r"\.to_k\.", ".keys."),
    (r"\.to_v\.", ".values."),
    (r"\.to_out\.0\.", ".output."),
    (r"\.q_norm\.", ".query_norm."),
    (r"\.k_norm\.", ".key_norm."),
    (r"\.ff\.0\.0\.", ".widen."),
    (r"\.ff\.2\.", ".narrow."),
)
_RENAMES: dict[Backbone, tuple[tuple[str, str], ...]] = {
    "DiT": (
        *_COMMON,
        (r"^transformer_blocks\.(\d+)\.attn_norm\.linear\.", r"modulations.\1."),
        (r"^transformer_blocks\.(\d+)\.attn\.", r"blocks.\1.attention."),
        (r"^transformer_blocks\.(\d+)\.ff\.", r"blocks.\1.mlp."),
        (r"^long_skip_connection\.", "long_skip."),
        (r"^norm_out\.linear\.", "output_modulation."),
        *_LAYER,
    ),
    "UNetT": (
        *_COMMON,
        (r"^layers\.(\d+)\.0\.", r"blocks.\1.skip."),
        (r"^layers\.(\d+)\.1\.g$", r"blocks.\1.attention_norm.gain"),
        (r"^layers\.(\d+)\.2\.", r"blocks.\1.attention."),
        (r"^layers\.(\d+)\.3\.g$", r"blocks.\1.mlp_norm.gain"),
        (r"^layers\.(\d+)\.4\.", r"blocks.\1.mlp."),
        (r"^norm_out\.g$", "output_norm.gain"),
        *_LAYER,
    ),
}
_VOCODER = (
    (r"^backbone\.embed\.", "embedding."),
    (r"^backbone\.norm\.", "norm."),
    (r"^backbone\.convnext\.", "blocks."),
    (r"^backbone\.final_layer_norm\.", "output_norm."),
    (r"^head\.out\.", "output."),
    (r"^head\.istft\.window$", "window"),
    (r"\.dwconv\.", ".depthwise."),
    (r"\.pwconv1\.", ".widen."),
    (r"\.pwconv2\.", ".narrow."),
    (r"\.gamma$", ".gain"),
)


@dataclass(frozen=True)
class Modules:
    """A loaded model, on the CPU, for inference only. vocoder: None for models of BigVGAN's mel spectrograms."""

    architecture: Architecture
    vocabulary: Vocabulary
    network: Network
    vocoder: Vocos | None


def load_modules(path: Path, dtype: torch.dtype | None = None) -> Modules:
    """Load the model at `path`: its folder, or the file of its weights.

    dtype: of the transformer's weights; None: as they are stored, mapped and not copied. Raises ModelNotFound if files
    are missing, ModelFileError if one is not what it should be.
    """
    weights = find_weights(path)
    folder = weights.parent
    vocabulary = read_vocabulary(find_beside(folder, VOCABULARY))
    network = load_network(weights, vocabulary, dtype)
    architecture = network.architecture
    vocoder = load_vocoder(find_vocoder(folder), architecture) if architecture.mel_spec_type == "vocos" else None
    return Modules(architecture, vocabulary, network, vocoder)


def find_weights(path: Path) -> Path:
    """`path` itself if it is a file, else the checkpoint of most training steps in it, safetensors first."""
    if path.is_file():
        return path
    for suffix in (".safetensors", ".pt"):
        found = sorted(path.glob(f"model_*{suffix}"), key=_training_steps)
        if found:
            return found[-1]
    raise ModelNotFound(f"{path}: holds no model_*.safetensors and no model_*.pt; download the model again")


def _training_steps(path: Path) -> tuple[int, str]:
    found = re.search(r"model_(\d+)", path.name)
    return (int(found[1]) if found else -1), path.name


def find_beside(folder: Path, name: str) -> Path:
    """The file of that name in `folder` or one level up; ModelNotFound."""
    for place in (folder, folder.parent):
        if (place / name).is_file():
            return place / name
    raise ModelNotFound(f"{folder}: there is no {name} in it, nor one level up; download it with the model")


def find_vocoder(folder: Path) -> Path:
    """The folder of Vocos: in `folder`, or beside it or one of the folders around it; ModelNotFound."""
    for place in (folder, *list(folder.parents)[:LEVELS_AROUND]):
        for name in VOCODER_FOLDERS:
            if (place / name / CONFIG).is_file():
                return place / name
    raise ModelNotFound(
        f"{folder}: there is no vocoder. Download {CONFIG} and {VOCODER_WEIGHTS} of charactr/vocos-mel-24khz from "
        f"huggingface.co into {folder.parent / VOCODER_FOLDERS[0]}"
    )


def load_network(weights: Path, vocabulary: Vocabulary, dtype: torch.dtype | None = None) -> Network:
    """The transformer whose checkpoint is the file `weights`; see `load_modules`."""
    with opened(weights) as tensors:
        architecture = read_architecture(weights.parent, weights, tensors.shapes)
        return _network(architecture, vocabulary, tensors, dtype)


def _network(
    architecture: Architecture, vocabulary: Vocabulary, tensors: Stored, dtype: torch.dtype | None
) -> Network:
    rows = tensors.shapes.get("transformer.text_embed.text_embed.weight", (0,))[0]
    if rows and rows != vocabulary.size + 1:
        raise ModelFileError(
            f"{tensors.path}: knows {rows - 1} tokens, its {VOCABULARY} has {vocabulary.size}; they belong to "
            "different models"
        )
    with torch.device("meta"):
        network = KINDS[architecture.backbone](architecture, vocabulary.size)
    if dtype is None:
        wide = architecture.mel_spec_type == "bigvgan"
        dtype = torch.float32 if wide else stored_dtype(tensors, "transformer.proj_out.bias")
    fill(network, tensors, lambda name: network_name(name, architecture.backbone), dtype, ARCHITECTURE_FILE)
    return network


def network_name(name: str, backbone: Backbone) -> str:
    """A transformer's weight: official name → ours."""
    return _renamed(name.removeprefix("transformer."), _RENAMES[backbone])


def load_vocoder(folder: Path, architecture: Architecture) -> Vocos:
    """The Vocos model in `folder`, in float32. Its own mel spectrogram isn't used."""
    config = read_vocos_config(folder)
    if config.mel != architecture.mel_dim:
        raise ModelFileError(
            f"{folder}: the vocoder takes {config.mel} mel bands, the model makes {architecture.mel_dim}; they belong "
            "to different models"
        )
    path = folder / VOCODER_WEIGHTS
    if not path.is_file():
        raise ModelNotFound(f"{path}: there is no such file; download it with {CONFIG}")
    with torch.device("meta"):
        vocoder = Vocos(config)
    with opened(path) as tensors:
        fill(vocoder, tensors, _vocoder_name, torch.float32, CONFIG)
    return vocoder


def _vocoder_name(name: str) -> str | None:
    return None if name.startswith("feature_extractor.") else _renamed(name, _VOCODER)


def _renamed(name: str, renames: Iterable[tuple[str, str]]) -> str:
    for pattern, replacement in renames:
        name = re.sub(pattern, replacement, name)
    return name
