"""OmniVoice's network: text and frames of codes, some of them masked → logits of all codes.

After `OmniVoice` of omnivoice 0.2.1, as its outputs show it; parameters carry the checkpoint's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ...lm.packed import Ends, PackedDecoder, Packing
from ...nn.linear import Linear
from .config import OmniVoiceConfig


class Backbone(PackedDecoder):
    """The language model's layers, with the text's embedding beside them as in the checkpoint."""

    def __init__(self, config: OmniVoiceConfig) -> None:
        super().__init__(config.decoder)
        self.embed_tokens = nn.Embedding(config.text_vocab, config.decoder.width)


class Network(nn.Module):
    """Everything that runs in each step, and the text's embedding."""

    def __init__(self, config: OmniVoiceConfig) -> None:
        super().__init__()
        self.config = config
        self.llm = Backbone(config)
        self.audio_embeddings = nn.Embedding(config.codebooks * config.codes, config.decoder.width)
        self.audio_heads = Linear(config.decoder.width, config.codebooks * config.codes, bias=False)

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
        """Embeddings of packed rows, (total, width) → logits of their ends, (ends, codebooks, codes).

        check: raises to cancel; called between layers.
        """
        logits: Tensor = self.audio_heads(self.llm(x, packing, ends, check))
        return logits.view(len(logits), self.config.codebooks, self.config.codes)
