"""OmniVoice's network: text and frames of codes, some of them masked → logits of all codes.

After `OmniVoice` of omnivoice 0.2.1, as its outputs show it; parameters carry the checkpoint's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...lm.packed import Ends, PackedDecoder, Packing
from .config import OmniVoiceConfig


class Backbone(PackedDecoder):
    """The language model's layers, with the text's embedding beside them as in the checkpoint."""

    def __init__(self, config: OmniVoiceConfig) -> None:
        super().__init__(config.decoder)
        self.embed_tokens = nn.Embedding(config.text_vocab, config.decoder.width)


class Heads(nn.Linear):
    """One head for each codebook, in one weight."""

    def __init__(self, config: OmniVoiceConfig) -> None:
        super().__init__(config.decoder.width, config.codebooks * config.codes, bias=False)
        self.codes = config.codes

    def forward(self, asked: Sequence[Tensor]) -> list[Tensor]:  # type: ignore[override]
        """Of each codebook in turn: the hidden states that ask for it, (n, width) → (n, codes) float32 logits."""
        weights = torch.split(self.weight, self.codes)
        return [functional.linear(x, weight).float() for x, weight in zip(asked, weights, strict=True)]


class Network(nn.Module):
    """Everything that runs in each step, and the text's embedding."""

    def __init__(self, config: OmniVoiceConfig) -> None:
        super().__init__()
        self.config = config
        self.llm = Backbone(config)
        self.audio_embeddings = nn.Embedding(config.codebooks * config.codes, config.decoder.width)
        self.audio_heads = Heads(config)

    def memory_units(self) -> list[nn.Module]:
        """What runs one after the other."""
        return [*self.llm.layers, self.audio_heads]

    @property
    def dtype(self) -> torch.dtype:
        return self.llm.norm.weight.dtype

    def text(self, ids: Sequence[int], device: torch.device) -> Tensor:
        """Text ids → (ids, width)."""
        rows: Tensor = self.llm.embed_tokens(torch.tensor(ids, dtype=torch.long, device=device))
        return rows

    def frames(self, codes: Tensor) -> Tensor:
        """(codebooks, frames) codes or masks → (frames, width): the sum of each frame's embeddings."""
        first = torch.arange(len(codes), device=codes.device)[:, None] * self.config.codes
        embedded: Tensor = self.audio_embeddings(codes + first)
        return embedded.sum(0)

    def forward(self, x: Tensor, packing: Packing, ends: Ends, check: Callable[[], None]) -> Tensor:
        """Embeddings of packed rows, (total, width) → hidden states of their ends, (ends, width).

        check: raises to cancel; called between layers.
        """
        hidden: Tensor = self.llm(x, packing, ends, check)
        return hidden
