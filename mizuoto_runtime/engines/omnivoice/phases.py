"""OmniVoice at work: voices of recordings and of attributes, a text's codes, and their sound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...errors import InputError, ModelFileError
from ...library import ModelFiles
from ...loader import Loader
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from ...nn.finite import check_finite
from ...types import Audio
from .codec_config import CodecConfig
from .codec_decoder import CodecDecoder
from .codec_encoder import CodecEncoder
from .codec_estimates import decoder_bytes, encoder_bytes
from .codec_weights import load_codec
from .config import OmniVoiceConfig
from .instruct import parse_instruct
from .languages import language_id
from .normalise import normalise
from .postprocess import finish, join_chunks
from .reference import prepare_reference
from .speech import Codes, Speaker, Speech, Voice
from .text import TextTokenizer, finish_reference_text
from .unmask import Unmasking
from .weights import load_modules

CODEC_FOLDER = "audio_tokenizer"


@dataclass(frozen=True)
class OmniVoiceModel:
    """An open model. dtype: what the network computes in at the user's wish, "" for as stored."""

    config: OmniVoiceConfig
    codec: CodecConfig
    tokenizer: TextTokenizer
    network: ModelHandle
    encoder: ModelHandle
    decoder: ModelHandle
    dtype: str = ""


def load(files: ModelFiles, loader: Loader) -> OmniVoiceModel:
    """Open the model in the folder `files.path`. ModelFileError says what is wrong with its files."""
    assert files.path is not None
    loaded = load_modules(files.path, getattr(torch, loader.dtype) if loader.dtype else None)
    network = loader.handle("model", loaded.network, many_rows=[loaded.network])
    network.mark(loaded.network.llm.embed_tokens, "gather")
    network.mark(loaded.network.audio_embeddings, "gather")
    folder = files.path / CODEC_FOLDER
    codec = load_codec(folder, loader)
    config = loaded.config
    if codec.config.used != config.codebooks or codec.config.codebook_size > config.codes:
        raise ModelFileError(
            f"{folder / 'config.json'}: the codec has {codec.config.used} codebooks of {codec.config.codebook_size:,}, "
            f"the model {config.codebooks} of {config.codes:,} with the mask; they belong to different models"
        )
    return OmniVoiceModel(
        config, codec.config, loaded.tokenizer, network, codec.encoder, codec.decoder, loader.dtype
    )


def voice(
    ctx: PhaseContext,
    model: OmniVoiceModel,
    *,
    reference: Audio,
    reference_text: str | None,
    instruct: str,
    preprocess_prompt: bool,
) -> Voice:
    """The voice of a recording. InputError if its transcript is missing."""
    attributes = parse_instruct(instruct)
    text = reference_text or ""
    if not text.strip():
        raise InputError("the reference's text is missing; write what is said in the recording, word for word")
    if preprocess_prompt:
        text = finish_reference_text(text)
    sound = prepare_reference(reference.samples, reference.rate_hz, model.codec, preprocess=preprocess_prompt)
    for note in sound.notes:
        ctx.warn(note)
    return Voice(_encoded(ctx, model, sound.samples), text, sound.rms, attributes)


def _encoded(ctx: PhaseContext, model: OmniVoiceModel, samples: Tensor) -> Tensor:
    module = model.encoder.module
    assert isinstance(module, CodecEncoder)

    def encode() -> Tensor:
        codes: Tensor = module(samples.to(ctx.device), ctx.check)
        return codes.cpu()

    return ctx.run(
        "codec encoder",
        [model.encoder],
        encode,
        encoder_bytes(model.codec, samples.shape[1], torch.device(ctx.device)),
    )


def designed_voice(ctx: PhaseContext, model: OmniVoiceModel, *, instruct: str) -> Voice:
    """The voice that attributes ask for; "" lets the model choose."""
    return Voice(attributes=parse_instruct(instruct))


def generate(
    ctx: PhaseContext,
    model: OmniVoiceModel,
    *,
    text: str,
    voice: Voice | None,
    language: str,
    speed: float,
    duration: float | None,
    denoise: bool,
    audio_chunk_duration: float,
    audio_chunk_threshold: float,
    normalize_text: bool,
    **how: object,
) -> Codes:
    """The text's codes. how: the parameters of `Unmasking`."""
    if model.dtype:
        ctx.applied["dtype"] = model.dtype
    spoken, note = language_id(language)
    if note:
        ctx.warn(note)
    if normalize_text:
        text = normalise(text, spoken)
        if not text.strip():
            raise InputError("nothing is left of the text once it is normalised; write words, or turn normalise off")
        ctx.applied["normalized_text"] = text
    voice = voice or Voice()
    if voice.codes is not None and len(voice.codes) != model.config.codebooks:
        raise InputError(
            f"the voice has {len(voice.codes)} codebooks, this model {model.config.codebooks}; make the voice with it"
        )
    speech = Speech(
        text=text,
        voice=voice,
        language=spoken,
        speed=speed,
        duration=duration,
        denoise=denoise,
        chunk_seconds=audio_chunk_duration,
        threshold_seconds=audio_chunk_threshold,
        how=Unmasking(**how),  # type: ignore[arg-type]
    )
    return Speaker(model.config, model.tokenizer, model.codec.frame_rate_hz).speak(ctx, model.network, speech)


def decode(
    ctx: PhaseContext,
    model: OmniVoiceModel,
    *,
    codes: Codes,
    postprocess_output: bool,
    pad_duration: float,
    fade_duration: float,
) -> Audio:
    """The codes as audio, (1, length) at the codec's rate."""
    waves = []
    for index, chunk in enumerate(codes.chunks):
        ctx.progress(index, len(codes.chunks))
        waves.append(_decoded(ctx, model, chunk))
        check_finite(waves[-1], "the decoded samples")
    ctx.progress(len(codes.chunks), len(codes.chunks))
    rate_hz = model.codec.rate_hz
    joined = join_chunks(waves, rate_hz)
    how = partial(finish, joined, rate_hz, rms=codes.rms, pad_seconds=pad_duration, fade_seconds=fade_duration)
    finished = how(trim=postprocess_output)
    if not finished.shape[1]:
        ctx.warn("all of the speech is quieter than -50 dB of full scale, so no silence was cut")
        finished = how(trim=False)
    return Audio(finished, rate_hz)


def _decoded(ctx: PhaseContext, model: OmniVoiceModel, codes: Tensor) -> Tensor:
    """(1, samples)."""
    module = model.decoder.module
    assert isinstance(module, CodecDecoder)

    def decode() -> Tensor:
        samples: Tensor = module(codes.to(ctx.device), ctx.check)
        return samples.cpu()

    return ctx.run(
        "codec decoder",
        [model.decoder],
        decode,
        decoder_bytes(model.codec, codes.shape[1], torch.device(ctx.device)),
    )
