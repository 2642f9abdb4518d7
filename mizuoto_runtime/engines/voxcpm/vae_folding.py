"""Upstream's weights → the decoder's and the encoder's, folded.

Old `weight_norm` is undone, snakes' α and biases go where they cost nothing (see vae_layers.py), and matrices are laid
out as rows meet them. Large ones come first, each is read once and its pages are given back, so that loading needs
little more memory than the file's size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from ...weights.pages import give_back_pages
from .vae_config import VaeConfig
from .vae_decoder import Block as DecoderBlock
from .vae_decoder import VaeDecoder
from .vae_encoder import Block as EncoderBlock
from .vae_encoder import VaeEncoder
from .vae_layers import DILATIONS, Windows
from .vae_layout import (
    BOUNDS,
    FIRST,
    INPUT,
    INPUT_POINTWISE,
    MEAN,
    condition,
    decoder_block,
    encoder_block,
    output_names,
    unit,
)

LEAST_ALPHA = 1e-12
"""Smaller ones are taken for this: its weights stay finite, and the snake is straight."""
LARGE_BYTES = 1 << 20
Build = Callable[[Tensor, Tensor], dict[str, Tensor]]
"""A weight without its norm, and what its rows (its first dimension) are multiplied with → ours."""


class Source(Protocol):
    """The checked weights of a file. All are float32."""

    def vector(self, name: str) -> Tensor:
        """A weight as (values)."""

    def rows(self, name: str) -> Tensor:
        """A weight as it is stored."""

    def convolution(self, name: str) -> tuple[Tensor, Tensor]:
        """The weight of a convolution without its norm, and (rows) what its rows are multiplied with. Only once."""

    def size_bytes(self, name: str) -> int:
        """What the weight of a convolution takes."""


class Folding:
    """Collects what becomes of the weights of one module, then fills it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._found: dict[str, Tensor] = {}
        self._jobs: dict[str, Build] = {}

    def set(self, target: str, value: Tensor) -> None:
        self._found[target] = value

    def job(self, name: str, build: Build) -> None:
        """Build ours of the convolution of that name, later."""
        self._jobs[name] = build

    def alpha(self, name: str) -> Tensor:
        alpha = self.source.vector(f"{name}.alpha")
        least = torch.full_like(alpha, LEAST_ALPHA).copysign(alpha)
        return torch.where(alpha.abs() < LEAST_ALPHA, least, alpha)

    def bias(self, name: str) -> Tensor:
        return self.source.vector(f"{name}.bias")

    def snake(self, target: str, alpha: Tensor, pending: Tensor, scale: Tensor | None = None) -> None:
        """A snake of scale · x + pending."""
        self.set(f"{target}.scale", alpha if scale is None else alpha * scale)
        self.set(f"{target}.shift", alpha * pending)

    def dilated(self, target: str, name: str, before: Tensor | None = None, after: Tensor | None = None) -> None:
        """A Depthwise or Dense; before and after: the snakes' α, None for none."""
        bias = self.bias(name)
        self.set(f"{target}.bias", bias if after is None else bias * after)

        def build(weight: Tensor, scale: Tensor) -> dict[str, Tensor]:
            taps = weight.permute(2, 1, 0) * (scale if after is None else scale * after)
            if before is not None:
                taps /= before if weight.shape[1] == 1 else before[:, None]
            return {f"{target}.taps": taps.squeeze(1).contiguous()}

        self.job(name, build)

    def pointwise(self, target: str, name: str, before: Tensor | None = None) -> None:
        """A Matrix, without its bias."""

        def build(weight: Tensor, scale: Tensor) -> dict[str, Tensor]:
            matrix = weight[:, :, 0] * scale[:, None]
            return {f"{target}.weight": matrix if before is None else matrix.div_(before)}

        self.job(name, build)

    def windows(self, target: str, name: str, module: Windows, before: Tensor | None = None) -> None:
        """The Windows of a strided convolution, without its bias."""

        def build(weight: Tensor, scale: Tensor) -> dict[str, Tensor]:
            found = {}
            for part, (start, end) in enumerate(itertools.pairwise(module.bounds)):
                matrix = weight[start:end].transpose(1, 2).contiguous().mul_(scale[start:end, None, None])
                found[f"{target}.parts.{part}.weight"] = _over(matrix, before).flatten(1)
            return found

        self.job(name, build)

    def transposed(self, target: str, name: str, module: Windows, rate: int, before: Tensor) -> None:
        """The Windows of a transposed convolution: first what the row before adds, then the row itself."""

        def build(weight: Tensor, scale: Tensor) -> dict[str, Tensor]:
            inputs, outputs, _ = weight.shape
            phases = weight.view(inputs, outputs, 2, rate).permute(3, 1, 2, 0)
            found = {}
            for part, (start, end) in enumerate(itertools.pairwise(module.bounds)):
                chosen = phases[start // outputs : end // outputs]
                matrix = torch.empty_like(chosen, memory_format=torch.contiguous_format)
                matrix[:, :, 0], matrix[:, :, 1] = chosen[:, :, 1], chosen[:, :, 0]
                found[f"{target}.parts.{part}.weight"] = _over(matrix.mul_(scale), before).reshape(end - start, -1)
            return found

        self.job(name, build)

    def units(self, target: str, block: str, first: int, pending: Tensor) -> Tensor:
        """A block's residual units; the bias that is pending after them."""
        for number in range(len(DILATIONS)):
            theirs, ours = unit(block, first, number), f"{target}.units.{number}"
            before, after = self.alpha(f"{theirs}.0"), self.alpha(f"{theirs}.2")
            self.snake(f"{ours}.snake", before, pending)
            self.dilated(f"{ours}.dilated", f"{theirs}.1", before, after)
            self.pointwise(f"{ours}.pointwise", f"{theirs}.3", after)
            pending = pending + self.bias(f"{theirs}.3")
        return pending

    def fill(self, module: nn.Module) -> None:
        """Give `module`, built on the meta device, what was collected."""
        for name in sorted(self._jobs, key=self.source.size_bytes, reverse=True):
            weight, scale = self.source.convolution(name)
            self._found.update(self._jobs[name](weight, scale))
            if weight.nbytes >= LARGE_BYTES:
                give_back_pages([weight])
        module.load_state_dict(self._found, strict=True, assign=True)
        module.requires_grad_(False).eval()


def _over(matrix: Tensor, divisor: Tensor | None) -> Tensor:
    return matrix if divisor is None else matrix.div_(divisor)


def fold_decoder(folding: Folding, decoder: VaeDecoder) -> None:
    """Collect the decoder's weights."""
    config = decoder.config
    pending = _input(folding, config)
    for number, block in enumerate([*decoder.blocks, *decoder.tail.blocks]):
        assert isinstance(block, DecoderBlock)
        ours = f"blocks.{number}" if number < len(decoder.blocks) else f"tail.blocks.{number - len(decoder.blocks)}"
        theirs = decoder_block(config, number)
        scale, shift = _condition(folding, config, number)
        alpha = folding.alpha(f"{theirs}.0")
        folding.snake(f"{ours}.upsampling.snake", alpha, pending * scale + shift, scale)
        windows = block.upsampling.windows
        folding.transposed(f"{ours}.upsampling.windows", f"{theirs}.1", windows, block.rate, alpha)
        pending = folding.units(f"{ours}.units", theirs, 2, folding.bias(f"{theirs}.1"))
    activation, convolution = output_names(config)
    alpha = folding.alpha(activation)
    folding.snake("tail.output.snake", alpha, pending)
    folding.set("tail.output.bias", folding.bias(convolution))
    folding.job(
        convolution,
        lambda weight, scale: {"tail.output.taps": (weight[0].T * scale).div_(alpha).contiguous()},
    )


def _input(folding: Folding, config: VaeConfig) -> Tensor:
    """Returns the pending bias."""
    folding.dilated("input.dilated", INPUT)
    if not config.depthwise:
        return torch.zeros(config.decoder_dim)
    folding.pointwise("input.pointwise", INPUT_POINTWISE)
    return folding.bias(INPUT_POINTWISE)


def _condition(folding: Folding, config: VaeConfig, block: int) -> tuple[Tensor, Tensor]:
    """What a block's input is scaled and shifted by."""
    width = config.decoder_widths[block]
    if config.bounds_hz is None:
        return torch.ones(width), torch.zeros(width)
    row = config.condition(folding.source.vector(BOUNDS).tolist())
    if not config.scaled:
        return torch.ones(width), folding.source.rows(condition(config, block, "cond"))[row]
    scale, shift = (folding.source.rows(condition(config, block, kind))[row] for kind in ("scale", "bias"))
    return scale, shift


def fold_encoder(folding: Folding, encoder: VaeEncoder) -> None:
    """Collect the encoder's weights."""
    folding.windows("head.first", FIRST, encoder.head.first)
    pending = folding.bias(FIRST)
    for number, block in enumerate([*encoder.head.blocks, *encoder.blocks]):
        assert isinstance(block, EncoderBlock)
        joined = len(encoder.head.blocks)
        ours = f"head.blocks.{number}" if number < joined else f"blocks.{number - joined}"
        theirs = encoder_block(number)
        pending = folding.units(f"{ours}.units", theirs, 0, pending)
        alpha = folding.alpha(f"{theirs}.{len(DILATIONS)}")
        folding.snake(f"{ours}.downsampling.snake", alpha, pending)
        name = f"{theirs}.{len(DILATIONS) + 1}"
        folding.windows(f"{ours}.downsampling.windows", name, block.downsampling.windows, alpha)
        pending = folding.bias(name)
    folding.set("mean.shift", pending)
    folding.set("mean.bias", folding.bias(MEAN))
    folding.windows("mean.windows", MEAN, encoder.mean.windows)
