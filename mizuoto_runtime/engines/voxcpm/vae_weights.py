"""Loads the audio VAE from audiovae.safetensors or audiovae.pth: mapped, strict, nothing but tensors."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ...errors import ModelFileError
from ...weights.checkpoint import listed, renamed
from ...weights.stored import Stored
from .checkpoint import opened
from .vae_config import KEY, VaeConfig
from .vae_decoder import VaeDecoder
from .vae_encoder import VaeEncoder
from .vae_folding import Folding, fold_decoder, fold_encoder
from .vae_layout import BOUNDS, Shapes, convolutions, others, outputs

SAFETENSORS, PICKLE = "audiovae.safetensors", "audiovae.pth"
UNUSED = "encoder.fc_logvar."
NORM, DIRECTION = ".weight_g", ".weight_v"
_RENAMED = ((".parametrizations.weight.original0", NORM), (".parametrizations.weight.original1", DIRECTION))


def load_vae(folder: Path, config: VaeConfig, *, encoding: bool = True) -> tuple[VaeDecoder, VaeEncoder | None]:
    """The VAE of the checkpoint in `folder`, in float32, on the CPU, for inference only.

    encoding: whether the encoder is wanted. Raises ModelNotFound if there is no VAE, ModelFileError if its file is not
    what it should be.
    """
    with opened(folder, SAFETENSORS, PICKLE) as stored:
        source = VaeFile(stored)
        source.check(config)
        with torch.device("meta"):
            decoder = VaeDecoder(config)
            encoder = VaeEncoder(config) if encoding else None
        folding = Folding(source)
        fold_decoder(folding, decoder)
        folding.fill(decoder)
        if encoder is not None:
            folding = Folding(source)
            fold_encoder(folding, encoder)
            folding.fill(encoder)
    return decoder, encoder


class VaeFile:
    """A file's tensors, read when they are asked for. shapes: by name; names of newer weight_norm become the old's."""

    def __init__(self, stored: Stored) -> None:
        self.path = stored.path
        self._names = renamed(stored.shapes, _ours, stored.path)
        self.shapes = {ours: stored.shapes[name] for ours, name in self._names.items()}
        self._stored = stored

    def vector(self, name: str) -> Tensor:
        """A weight as (values)."""
        return self.table(name).flatten()

    def table(self, name: str) -> Tensor:
        """A weight as it is stored."""
        return self._floating(name).float()

    def convolution(self, name: str) -> tuple[Tensor, Tensor | None]:
        """The weight of a convolution as it is stored, and its rows' norms if that is without them."""
        if f"{name}{DIRECTION}" not in self.shapes:
            return self._floating(f"{name}.weight"), None
        return self._floating(f"{name}{DIRECTION}"), self._floating(f"{name}{NORM}")

    def check(self, config: VaeConfig) -> None:
        """Refuse a file that lacks a weight, holds others, or has one of another shape."""
        wanted = self._wanted(config)
        unexpected = self.shapes.keys() - wanted.keys()
        if unexpected:
            raise ModelFileError(f"{self.path}: unexpected weights: {listed(unexpected)}; it is another model's")
        missing = wanted.keys() - self.shapes.keys()
        if missing:
            raise ModelFileError(
                f"{self.path}: {len(missing)} weights are missing: {listed(missing)}; download the file again"
            )
        for name, shape in wanted.items():
            if self.shapes[name] != shape:
                raise ModelFileError(
                    f"{self.path}: the weight {self._names[name]!r} is {list(self.shapes[name])}; by {KEY} in "
                    f"config.json it is {list(shape)}. The two files belong to different models"
                )

    def _wanted(self, config: VaeConfig) -> Shapes:
        wanted = others(config)
        for name, shape in convolutions(config).items():
            wanted[f"{name}.bias"] = (outputs(name, shape, config),)
            if f"{name}.weight" in self.shapes:
                wanted[f"{name}.weight"] = shape
            else:
                wanted |= {f"{name}{NORM}": (shape[0], 1, 1), f"{name}{DIRECTION}": shape}
        return wanted

    def _floating(self, name: str) -> Tensor:
        """A weight as it is stored; only the bounds may be whole numbers."""
        stored = self._names[name]
        return self._stored.get(stored) if name == BOUNDS else self._stored.floating(stored)


def _ours(name: str) -> str | None:
    if name.startswith(UNUSED):
        return None
    for theirs, ours in _RENAMED:
        name = name.replace(theirs, ours)
    return name
