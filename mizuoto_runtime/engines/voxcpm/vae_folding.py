"""Upstream's weights → the decoder's and the encoder's, folded.

Old `weight_norm` is undone, snakes' α and biases go where they cost nothing (see vae_layers.py), and matrices are laid
out as rows meet them. Weights are read in slices, whose pages are given back, so that loading needs little more memory
than the file's size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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
SLICE_WEIGHTS = 1 << 18
GIVEN_BACK_BYTES = 1 << 21


class Source(Protocol):
    """The checked weights of a file. All are float32."""

    def vector(self, name: str) -> Tensor:
        """A weight as (values)."""

    def table(self, name: str) -> Tensor:
        """A weight as it is stored."""

    def convolution(self, name: str) -> tuple[Tensor, Tensor | None]:
        """The weight of a convolution as it is stored, and its rows' norms if that is without them."""


class ReadPages:
    """Gives back a file's pages that were read, some megabytes at a time."""

    def __init__(self) -> None:
        self._read: dict[int, Tensor] = {}
        self._held_bytes = 0

    def note(self, start: Tensor, size_bytes: int) -> None:
        """So many bytes more of a tensor were read, now up to its `start`'s end.

        All of `start` is given back then, since systems map pages in groups, and some of those before came back.
        """
        self._read[start.data_ptr()] = start
        self._held_bytes += size_bytes
        if self._held_bytes >= GIVEN_BACK_BYTES:
            self.give_back()

    def give_back(self) -> None:
        give_back_pages(self._read.values())
        self._read.clear()
        self._held_bytes = 0


class Rows:
    """The weight of a convolution, in its first dimension's slices."""

    def __init__(self, stored: Tensor, norms: Tensor | None, pages: ReadPages) -> None:
        self.stored, self.norms = stored, norms
        self.shape = stored.shape
        self._pages = pages

    def read(self, start: int = 0, end: int | None = None) -> Tensor:
        """A copy of the rows from `start` to `end`, with their norms; the file's pages aren't kept."""
        stored = self.stored[start:end]
        weight = stored.to(torch.float32, copy=True)
        self._pages.note(self.stored[:end], stored.nbytes)
        if self.norms is not None:
            norms = self.norms[start:end].float().flatten() / torch.linalg.vector_norm(weight.flatten(1), dim=1)
            weight.mul_(norms[:, None, None])
        return weight

    def slices(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Of the rows from `start` to `end`, those that are to be read at once."""
        step = max(1, SLICE_WEIGHTS // self.shape[1:].numel())
        return ((at, min(end, at + step)) for at in range(start, end, step))


Build = Callable[[Rows], dict[str, Tensor]]
"""The weight of a convolution → ours."""


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

        def build(rows: Rows) -> dict[str, Tensor]:
            weight = rows.read()
            if after is not None:
                weight.mul_(after[:, None, None])
            if before is not None:
                weight.div_((before if rows.shape[1] > 1 else before[:, None])[..., None])
            return {f"{target}.taps": weight.permute(2, 1, 0).squeeze(1).contiguous()}

        self.job(name, build)

    def pointwise(self, target: str, name: str, before: Tensor | None = None) -> None:
        """A Matrix, without its bias."""
        self.job(name, lambda rows: {f"{target}.weight": _over(rows.read()[:, :, 0], before)})

    def windows(self, target: str, name: str, module: Windows, before: Tensor | None = None) -> None:
        """The Windows of a strided convolution, without its bias."""

        def build(rows: Rows) -> dict[str, Tensor]:
            found = {}
            for part, (start, end) in enumerate(itertools.pairwise(module.bounds)):
                matrix = torch.empty(end - start, rows.shape[2], rows.shape[1])
                for at, to in rows.slices(start, end):
                    matrix[at - start : to - start] = rows.read(at, to).transpose(1, 2)
                found[f"{target}.parts.{part}.weight"] = _over(matrix, before).flatten(1)
            return found

        self.job(name, build)

    def transposed(self, target: str, name: str, module: Windows, rate: int, before: Tensor) -> None:
        """The Windows of a transposed convolution: first what the row before adds, then the row itself."""

        def build(rows: Rows) -> dict[str, Tensor]:
            inputs, outputs, _ = rows.shape
            phases = [(start // outputs, end // outputs) for start, end in itertools.pairwise(module.bounds)]
            parts = [torch.empty(end - start, outputs, 2, inputs) for start, end in phases]
            for at, to in rows.slices(0, inputs):
                weight = rows.read(at, to).div_(before[at:to, None, None]).view(-1, outputs, 2, rate)
                for part, (start, end) in zip(parts, phases, strict=True):
                    part[:, :, 0, at:to] = weight[:, :, 1, start:end].permute(2, 1, 0)
                    part[:, :, 1, at:to] = weight[:, :, 0, start:end].permute(2, 1, 0)
            return {f"{target}.parts.{number}.weight": part.view(-1, 2 * inputs) for number, part in enumerate(parts)}

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
        pages = ReadPages()
        for name, build in self._jobs.items():
            self._found.update(build(Rows(*self.source.convolution(name), pages)))
        pages.give_back()
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
    folding.job(convolution, lambda rows: {"tail.output.taps": rows.read()[0].T.div(alpha).contiguous()})


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
        return torch.ones(width), folding.source.table(condition(config, block, "cond"))[row]
    scale, shift = (folding.source.table(condition(config, block, kind))[row] for kind in ("scale", "bias"))
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
