"""Tokens → the text's embedding, stretched or filled to the length of the sound.

Arithmetic: `TextEmbedding` of f5_tts/model/backbones/dit.py and unett.py, f5-tts 1.1.22, which differ in how rows of
unequal length and positions beyond the table are treated.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .config import Architecture
from .layers import THETA, TextBlock

UNETT_POSITIONS = 4096
INNER = 2


class TextEncoder(nn.Module):
    """Token ids → (2 · rows, frames, width): the rows, then as many of the text left out, for guidance."""

    def __init__(self, architecture: Architecture, tokens: int) -> None:
        super().__init__()
        width = architecture.text_dim
        self.masks_filler = architecture.text_mask_padding
        self.stretches = architecture.text_embedding_average_upsampling
        self.knows_lengths = architecture.backbone == "DiT"
        self.tokens = nn.Embedding(tokens + 1, width)
        self.blocks = nn.ModuleList(TextBlock(width, INNER * width) for _ in range(architecture.conv_layers))

    def forward(self, ids: Tensor, frames: Tensor, check: Callable[[], None], *, guided: bool) -> Tensor:
        """ids: int64 (rows, tokens), −1 after a row's end. frames: int64 (rows), each row's length.

        check: raises to cancel; called between layers.
        """
        length = int(frames.max())
        ids = nn.functional.pad((ids + 1)[:, :length], (0, max(0, length - ids.shape[1])))
        valid = self._valid(length, frames.to(ids.device)) if self.knows_lengths and len(frames) > 1 else None
        if valid is not None:
            ids = ids.masked_fill(~valid, 0)
        filler = ids == 0
        if guided:
            ids = torch.cat((ids, torch.zeros_like(ids)))
            filler = torch.cat((filler, filler))
            valid = None if valid is None else torch.cat((valid, valid))
        x = self._encoded(ids, filler, valid, check)
        return self._stretched(x, ~filler, frames) if self.stretches else x

    @staticmethod
    def _valid(length: int, frames: Tensor) -> Tensor:
        return torch.arange(length, device=frames.device)[None] < frames[:, None]

    def _encoded(self, ids: Tensor, filler: Tensor, valid: Tensor | None, check: Callable[[], None]) -> Tensor:
        x: Tensor = self.tokens(ids)
        if valid is not None:
            x = x.masked_fill(~valid[..., None], 0.0)
        if not len(self.blocks):
            return x
        places = self._places(ids.shape[1]).to(x)[None]
        x = x + (places if valid is None else places * valid[..., None].to(x.dtype))
        hidden = filler[..., None]
        if self.masks_filler:
            x = x.masked_fill(hidden, 0.0)
        for block in self.blocks:
            check()
            x = block(x)
            if self.masks_filler:
                x = x.masked_fill(hidden, 0.0)
        return x

    def _places(self, length: int) -> Tensor:
        """(length, width) float32: cosines, then sines."""
        width = self.tokens.embedding_dim
        frequencies = 1.0 / (THETA ** (torch.arange(0, width, 2).float() / width))
        places = torch.arange(length)
        if not self.knows_lengths:
            places = places.clamp(max=UNETT_POSITIONS - 1)
        angles = torch.outer(places, frequencies).float()
        return torch.cat((angles.cos(), angles.sin()), dim=-1)

    def _stretched(self, x: Tensor, spoken: Tensor, frames: Tensor) -> Tensor:
        """Each token's embedding repeated, so that the tokens fill the row; the last ones once more often."""
        stretched = torch.zeros_like(x)
        for row, (tokens, there) in enumerate(zip(x, spoken, strict=True)):
            count, length = int(there.sum()), int(frames[row % len(frames)])
            if not count:
                continue
            repeats, more = divmod(length, count)
            times = torch.full((count,), repeats, device=x.device)
            if more:
                times[-more:] += 1
            stretched[row, :length] = tokens[there].repeat_interleave(times, dim=0)
        return stretched
