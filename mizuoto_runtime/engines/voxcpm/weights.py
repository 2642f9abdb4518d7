"""Loads a VoxCPM model: its folder → its description, its tokenizer and its modules, mapped from the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ...errors import ModelFileError
from ...nn.linear import lay_out_in_blocks
from ...weights.checkpoint import listed, renamed
from ...weights.pages import converted, give_back_pages
from ...weights.stored import Stored
from .checkpoint import opened
from .config import CONFIG, VoxCpmConfig, read_config
from .network import VoxCpm
from .text import TextTokenizer, load_tokenizer
from .vae_decoder import VaeDecoder
from .vae_encoder import VaeEncoder
from .vae_weights import load_vae

SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
DIT = "feat_decoder.estimator."
UNUSED = "audio_vae."
"""Some files hold the VAE once more."""


@dataclass(frozen=True)
class Modules:
    """A loaded model, on the CPU, for inference only."""

    config: VoxCpmConfig
    tokenizer: TextTokenizer
    model: VoxCpm
    encoder: VaeEncoder
    decoder: VaeDecoder


def load_modules(folder: Path, dtype: torch.dtype | None = None, *, blocks: bool = False) -> Modules:
    """Load the model in `folder`.

    dtype: of the model's weights, None: as its description says; what is stored so is mapped and not copied. blocks:
    whether bfloat16 weights that each step reads once may be copied into another layout, see `lay_out_in_blocks`; in
    float32 it gains nothing. Raises ModelNotFound if files are missing, ModelFileError if one is not what it should be.
    """
    config = read_config(folder)
    tokenizer = load_tokenizer(folder, config.vocab)
    model = load_model(folder, config, dtype or getattr(torch, config.dtype), blocks=blocks)
    decoder, encoder = load_vae(folder, config.vae)
    assert encoder is not None
    return Modules(config, tokenizer, model, encoder, decoder)


def load_model(folder: Path, config: VoxCpmConfig, dtype: torch.dtype, *, blocks: bool = False) -> VoxCpm:
    """The language models with their local encoder and DiT; see `load_modules`."""
    with torch.device("meta"):
        model = VoxCpm(config)
    with opened(folder, SAFETENSORS, PICKLE) as stored:
        names = renamed(stored.shapes, _ours, stored.path)
        _check(stored, names, {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
        _fill(model, stored, names, dtype, blocks=blocks and dtype == torch.bfloat16)
    return model.requires_grad_(False).eval()


def _ours(name: str) -> str | None:
    if name.startswith(UNUSED):
        return None
    return name.replace(DIT, "feat_decoder.") if name.startswith(DIT) else name


def _fill(model: VoxCpm, stored: Stored, names: dict[str, str], dtype: torch.dtype, *, blocks: bool) -> None:
    """Layer by layer, so that what is copied is in RAM once: the file's pages of it are given back."""
    if blocks:
        for prefix, decoder in (("base_lm", model.base_lm), ("residual_lm", model.residual_lm)):
            for index, layer in enumerate(decoder.layers):
                _fill_part(layer, stored, names, dtype, f"{prefix}.layers.{index}.")
                lay_out_in_blocks(layer, lambda weight: give_back_pages([weight]))
    _fill_part(model, stored, names, dtype, "")


def _fill_part(part: nn.Module, stored: Stored, names: dict[str, str], dtype: torch.dtype, prefix: str) -> None:
    """Whatever is still missing in it."""
    missing = [name for name, tensor in part.state_dict().items() if tensor.is_meta]
    found = {name: converted(stored.floating(names[prefix + name]), dtype) for name in missing}
    part.load_state_dict(found, strict=False, assign=True)


def _check(stored: Stored, names: dict[str, str], wanted: dict[str, tuple[int, ...]]) -> None:
    unexpected = [name for ours, name in names.items() if ours not in wanted]
    if unexpected:
        raise ModelFileError(f"{stored.path}: unexpected weights: {listed(unexpected)}; it is another model's")
    missing = wanted.keys() - names.keys()
    if missing:
        raise ModelFileError(
            f"{stored.path}: {len(missing)} weights are missing: {listed(missing)}; download the file again"
        )
    for ours, shape in wanted.items():
        if stored.shapes[names[ours]] != shape:
            raise ModelFileError(
                f"{stored.path}: the weight {names[ours]!r} is {list(stored.shapes[names[ours]])}; by {CONFIG} it is "
                f"{list(shape)}. They belong to different models"
            )
