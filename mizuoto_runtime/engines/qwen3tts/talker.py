"""The talker: text and earlier frames → code 0 of the next frame; and the code predictor, which adds the other codes.

After `modeling_qwen3_tts.py` of qwen-tts 0.1.1, as its outputs show it; parameters carry the checkpoint's names.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...lm.decoder import ACTIVATIONS, Decoder, KeyStore
from ...lm.positions import Masks, Rope
from .config import TalkerConfig


class TextProjection(nn.Module):
    """(…, text width) → (…, talker's width)."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(config.text_width, config.text_width)
        self.linear_fc2 = nn.Linear(config.text_width, config.width)
        self.activation = ACTIVATIONS[config.decoder.activation]

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.linear_fc2(self.activation(self.linear_fc1(x)))
        return projected


class TalkerDecoder(Decoder):
    """The talker's layers, with its embeddings beside them as in the checkpoint."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__(config.decoder)
        self.codec_embedding = nn.Embedding(config.vocab, config.width)
        self.text_embedding = nn.Embedding(config.text_vocab, config.text_width)


class PredictorDecoder(Decoder):
    """The code predictor's layers. Embedding i is of code i + 1, in the talker's width."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__(config.predictor)
        self.codec_embedding = nn.ModuleList(
            nn.Embedding(config.predictor_vocab, config.width) for _ in range(config.groups - 1)
        )


class CodePredictor(nn.Module):
    """Codes 1 … of a frame, one after another, from the talker's hidden state and the codes before."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.model = PredictorDecoder(config)
        self.lm_head = nn.ModuleList(
            nn.Linear(config.predictor.width, config.predictor_vocab, bias=False) for _ in range(config.groups - 1)
        )
        self.small_to_mtp_projection = (
            nn.Identity() if config.predictor.width == config.width else nn.Linear(config.width, config.predictor.width)
        )

    def forward(self, x: Tensor, step: int, rope: Rope, masks: Masks, cache: KeyStore) -> Tensor:
        """(rows, new, talker's width) → (rows, codes) float32 logits of code `step` + 1."""
        hidden = self.model(self.small_to_mtp_projection(x), rope, masks, cache)
        logits: Tensor = self.lm_head[step](hidden[:, -1])
        return logits.float()


class Talker(nn.Module):
    """Everything that runs once a frame or more often, and the embedding of the text."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.config = config
        self.model = TalkerDecoder(config)
        self.text_projection = TextProjection(config)
        self.codec_head = nn.Linear(config.width, config.vocab, bias=False)
        self.code_predictor = CodePredictor(config)

    @property
    def dtype(self) -> torch.dtype:
        return self.codec_head.weight.dtype

    def text(self, ids: Sequence[int], device: torch.device) -> Tensor:
        """Text ids → (ids, width)."""
        chosen = torch.tensor(ids, dtype=torch.long, device=device)
        projected: Tensor = self.text_projection(self.model.text_embedding(chosen))
        return projected

    def codec(self, ids: Sequence[int], device: torch.device) -> Tensor:
        """Rows of the codec embedding → (ids, width)."""
        chosen = torch.tensor(ids, dtype=torch.long, device=device)
        rows: Tensor = self.model.codec_embedding(chosen)
        return rows

    def frames(self, codes: Tensor) -> Tensor:
        """(groups, frames) codes → (frames, width): the sum of each frame's embeddings, code 0 first."""
        tables = (self.model.codec_embedding, *self.code_predictor.model.codec_embedding)
        embedded = [table(row) for table, row in zip(tables, codes, strict=True)]
        return torch.stack(embedded, dim=1).sum(1)

    def step(self, x: Tensor, rope: Rope, masks: Masks, cache: KeyStore) -> tuple[Tensor, Tensor]:
        """New positions → the last one's hidden state (rows, 1, width) and its float32 logits (rows, vocab)."""
        hidden = self.model(x, rope, masks, cache)[:, -1:]
        return hidden, self.codec_head(hidden)[:, 0].float()
