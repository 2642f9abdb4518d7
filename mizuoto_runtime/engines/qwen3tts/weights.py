"""Loads a Qwen3-TTS model: its folder → its description, its tokenizer and its modules, mapped from the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ...errors import ModelFileError
from ...weights.checkpoint import Checkpoint
from .codec_config import CodecConfig, read_codec_config
from .codec_decoder import CodecDecoder
from .codec_encoder import CodecEncoder
from .codec_weights import load_codec, load_speaker_encoder
from .config import Qwen3TtsConfig, read_config
from .speaker_encoder import SpeakerEncoder
from .talker import Talker
from .text import TextTokenizer, load_tokenizer

CODEC_FOLDER = "speech_tokenizer"
TALKER = "talker."
SPEAKER_ENCODER = "speaker_encoder."


@dataclass(frozen=True)
class Modules:
    """A loaded model, on the CPU, for inference only. Base models alone have the two encoders."""

    config: Qwen3TtsConfig
    codec_config: CodecConfig
    tokenizer: TextTokenizer
    talker: Talker
    decoder: CodecDecoder
    encoder: CodecEncoder | None
    speaker_encoder: SpeakerEncoder | None


def load_modules(folder: Path, dtype: torch.dtype | None = None) -> Modules:
    """Load the model in `folder`. dtype: of all weights; None: as they are stored, mapped and not copied.

    Raises ModelNotFound if weights are missing, ModelFileError if a file is not what it should be.
    """
    config = read_config(folder)
    checkpoint = Checkpoint(folder)
    cloning = config.model_type == "base"
    checkpoint.check_prefixes(TALKER, *([SPEAKER_ENCODER] if cloning else []))
    with torch.device("meta"):
        talker = Talker(config.talker)
    checkpoint.fill(talker, TALKER, lambda name: name, dtype or checkpoint.dtype(TALKER))
    codec = folder / CODEC_FOLDER
    codec_config = read_codec_config(codec)
    if codec_config.decoder.quantizers != config.talker.groups:
        raise ModelFileError(
            f"{codec / 'config.json'}: the codec has {codec_config.decoder.quantizers} codes a frame, the talker "
            f"{config.talker.groups}; they belong to different models"
        )
    stored = dtype or Checkpoint(codec).dtype("decoder.")
    decoder, encoder = load_codec(codec, stored, encoding=cloning)
    speaker_encoder = None
    if cloning:
        speaker_encoder = load_speaker_encoder(folder, dtype or checkpoint.dtype(SPEAKER_ENCODER))
    return Modules(config, codec_config, load_tokenizer(folder), talker, decoder, encoder, speaker_encoder)
