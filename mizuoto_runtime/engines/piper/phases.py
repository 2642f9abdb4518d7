"""Piper at work: a voice's speaker, the encoding of a text sentence by sentence, and its decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ...audio.join import Joiner
from ...errors import InputError, UnknownName
from ...library import ModelFiles
from ...loader import Loader
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from ...text.sentences import split_sentences
from ...types import Audio
from .architecture import VitsConfig
from .config import PiperConfig
from .estimates import decoder_bytes, encoder_bytes
from .model import Encoded, duration_noise, latent_noise
from .text import phoneme_ids, phonemize, reading_note, split_phonemes, unknown_phonemes
from .weights import load_voice


@dataclass(frozen=True)
class PiperModel:
    """An open voice. name: what tells it from others."""

    name: str
    config: PiperConfig
    vits: VitsConfig
    encoder: ModelHandle
    decoder: ModelHandle


@dataclass(frozen=True)
class Speaker:
    """One speaker of the voice called `voice`, by number."""

    voice: str
    id: int


@dataclass(frozen=True)
class Encoding:
    """A text's sentences as the encoder of the voice called `voice` left them, on the CPU."""

    voice: str
    sentences: tuple[Encoded, ...]


def load(files: ModelFiles, loader: Loader) -> PiperModel:
    """Open the voice at `files.path`. ModelFileError says what is wrong with its files."""
    assert files.path is not None
    voice = load_voice(files.path)
    encoder, decoder = loader.handle("encoder", voice.encoder), loader.handle("decoder", voice.decoder)
    return PiperModel(files.ref.model, voice.config, voice.vits, encoder, decoder)


def voice(ctx: PhaseContext, model: PiperModel, *, speaker: str | None) -> Speaker:
    """The speaker called or numbered `speaker`; None: the voice's default."""
    config = model.config
    if speaker is None:
        return Speaker(model.name, config.default_speaker_id)
    number = config.speaker_id_map.get(speaker)
    if number is None and speaker.isascii() and speaker.isdigit() and int(speaker) < config.num_speakers:
        number = int(speaker)
    if number is None:
        numbers = "0" if config.num_speakers == 1 else f"0 to {config.num_speakers - 1}"
        raise UnknownName("speaker", speaker, [*config.speaker_id_map, f"the numbers {numbers}"])
    return Speaker(model.name, number)


def encode(
    ctx: PhaseContext,
    model: PiperModel,
    *,
    text: str,
    voice: Speaker | None,
    length_scale: float | None,
    noise_w: float | None,
) -> Encoding:
    """Every sentence of `text`, encoded; None for a scale: the voice's own. InputError if nothing can be spoken."""
    config = model.config
    speaker = voice or Speaker(model.name, config.default_speaker_id)
    _check_same_voice(model, "speaker", speaker.voice)
    note = reading_note(config)
    if note is not None:
        ctx.warn(note)
    sentences: list[Encoded] = []
    pieces = split_sentences(text)
    for index, piece in enumerate(pieces):
        ctx.progress(index, len(pieces))
        for ids in _sentence_ids(ctx, config, piece):
            sentences.append(
                _encode(
                    ctx,
                    model,
                    ids,
                    speaker,
                    config.length_scale if length_scale is None else length_scale,
                    config.noise_w if noise_w is None else noise_w,
                )
            )
    if not sentences:
        raise InputError("nothing in the text can be spoken by this voice; write words in its language")
    ctx.progress(len(pieces), len(pieces))
    return Encoding(model.name, tuple(sentences))


def decode(
    ctx: PhaseContext, model: PiperModel, *, encoding: Encoding, noise_scale: float | None, sentence_silence: float
) -> Audio:
    """The sentences as audio, (1, length) at the voice's rate, joined without clicks."""
    _check_same_voice(model, "encoding", encoding.voice)
    config = model.config
    scale = config.noise_scale if noise_scale is None else noise_scale
    joiner = Joiner(config.sample_rate_hz, silence_seconds=sentence_silence)
    for index, sentence in enumerate(encoding.sentences):
        ctx.progress(index, len(encoding.sentences))
        joiner.add(_decode(ctx, model, sentence, scale))
    ctx.progress(len(encoding.sentences), len(encoding.sentences))
    return Audio(joiner.finish(), config.sample_rate_hz)


def _check_same_voice(model: PiperModel, what: str, voice: str) -> None:
    if voice != model.name:
        raise InputError(f"the {what} is of the voice {voice!r}, the model {model.name!r}; connect one model to both")


def _sentence_ids(ctx: PhaseContext, config: PiperConfig, text: str) -> Iterator[list[int]]:
    for sentence in phonemize(text, config):
        unknown = unknown_phonemes(sentence, config.phoneme_id_map)
        if unknown:
            ctx.warn(f"the voice has no sound for {' '.join(map(repr, unknown))}; left out")
        if len(unknown) < len(set(sentence)):
            yield from (phoneme_ids(part, config.phoneme_id_map) for part in split_phonemes(sentence))


def _encode(
    ctx: PhaseContext, model: PiperModel, ids: Sequence[int], speaker: Speaker, length_scale: float, noise_w: float
) -> Encoded:
    module = model.encoder.module
    noise = duration_noise(ctx.rng, len(ids))

    def compute() -> Encoded:
        batch = torch.tensor([ids], device=ctx.device)
        encoded: Encoded = module(
            batch,
            noise=noise,
            noise_w=noise_w,
            length_scale=length_scale,
            speaker_id=speaker.id,
            check=ctx.check,
        )
        return _moved(encoded, "cpu")

    return ctx.run("encoder", [model.encoder], compute, encoder_bytes(model.vits, len(ids)))


def _decode(ctx: PhaseContext, model: PiperModel, sentence: Encoded, noise_scale: float) -> torch.Tensor:
    module = model.decoder.module
    noise = latent_noise(ctx.rng, sentence)

    def compute() -> torch.Tensor:
        samples: torch.Tensor = module(
            _moved(sentence, ctx.device), noise=noise, noise_scale=noise_scale, check=ctx.check
        )
        return samples.reshape(1, -1).float().cpu()

    return ctx.run("decoder", [model.decoder], compute, decoder_bytes(model.vits, sentence.length_frames))


def _moved(encoded: Encoded, device: str) -> Encoded:
    return Encoded(
        encoded.mean.to(device),
        encoded.log_scale.to(device),
        encoded.durations.to(device),
        None if encoded.speaker is None else encoded.speaker.to(device),
    )
