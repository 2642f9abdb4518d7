"""Loads an OmniVoice model's network: its folder → its description, its tokenizer and its module, mapped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ...weights.checkpoint import Checkpoint
from .config import OmniVoiceConfig, read_config
from .network import Network
from .text import TextTokenizer, load_tokenizer

PARTS = ("llm.", "audio_embeddings.", "audio_heads.")
OFFSETS = "codebook_layer_offsets"
"""Follows from the configuration, so it isn't read."""
COPY = "audio_tokenizer."
"""The codec's, if upstream saved a model that it had loaded; but the codec that it loads is the one in its folder."""


@dataclass(frozen=True)
class Modules:
    """A loaded network, on the CPU, for inference only."""

    config: OmniVoiceConfig
    tokenizer: TextTokenizer
    network: Network


def load_modules(folder: Path, dtype: torch.dtype | None = None) -> Modules:
    """Load the model in `folder`. dtype: of all weights; None: as they are stored, mapped and not copied.

    Raises ModelNotFound if weights are missing, ModelFileError if a file is not what it should be.
    """
    config = read_config(folder)
    checkpoint = Checkpoint(folder)
    checkpoint.check_prefixes(*PARTS, OFFSETS, COPY)
    with torch.device("meta"):
        network = Network(config)
    checkpoint.fill(network, "", _ours, dtype or checkpoint.dtype("llm."))
    return Modules(config, load_tokenizer(folder, config.text_vocab), network)


def _ours(name: str) -> str | None:
    return None if name == OFFSETS or name.startswith(COPY) else name
