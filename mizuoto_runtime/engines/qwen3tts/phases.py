"""Qwen3-TTS at work: voices, the talker's frames of codes, and their decoding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...audio.join import Joiner
from ...audio.mel import slaney_log_mel
from ...errors import InputError
from ...library import ModelFiles
from ...loader import Loader
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from ...nn.linear import lay_out_in_blocks
from ...types import Audio
from ...weights.pages import give_back_pages
from .codec_config import CodecConfig
from .codec_decoder import CodecDecoder
from .codec_encoder import CodecEncoder
from .codec_estimates import decoder_bytes, encoder_bytes, speaker_bytes
from .config import GenerationOptions, Qwen3TtsConfig
from .reference import prepare_reference
from .speaker_encoder import SpeakerEncoder
from .spec import VOICES_FOLDER
from .speech import Codes, Speech, write_codes
from .text import TextTokenizer
from .voices import Voice
from .voices import load_voice as read_voice
from .voices import save_voice as write_voice
from .weights import load_modules

SWITCHES = {None: None, "true": True, "false": False}


@dataclass(frozen=True)
class Qwen3TtsModel:
    """An open model. voices: the folder of its saved voices. Base models alone have the two encoders.

    dtype: what it computes in at the user's wish, "" for as stored.
    """

    config: Qwen3TtsConfig
    codec: CodecConfig
    tokenizer: TextTokenizer
    voices: Path
    talker: ModelHandle
    decoder: ModelHandle
    encoder: ModelHandle | None
    speaker_encoder: ModelHandle | None
    dtype: str = ""

    def note(self, ctx: PhaseContext) -> None:
        """Say in the output what was chosen for the whole model."""
        if self.dtype:
            ctx.applied["dtype"] = self.dtype


def load(files: ModelFiles, loader: Loader) -> Qwen3TtsModel:
    """Open the model in the folder `files.path`. ModelFileError says what is wrong with its files."""
    assert files.path is not None
    loaded = load_modules(files.path, getattr(torch, loader.dtype) if loader.dtype else None)
    if loader.device == "cpu":
        lay_out_in_blocks(loaded.talker.code_predictor.model.layers, lambda weight: give_back_pages([weight]))
    talker = loader.handle("talker", loaded.talker)
    talker.mark(loaded.talker.model.text_embedding, "gather")
    talker.mark(loaded.talker.code_predictor, "hot")
    decoder = loader.handle("codec_decoder", loaded.decoder)
    for embedding in loaded.decoder.embeddings():
        decoder.mark(embedding, "gather")
    return Qwen3TtsModel(
        config=loaded.config,
        codec=loaded.codec_config,
        tokenizer=loaded.tokenizer,
        voices=files.path.parent / VOICES_FOLDER,
        talker=talker,
        decoder=decoder,
        encoder=loader.handle("codec_encoder", loaded.encoder) if loaded.encoder else None,
        speaker_encoder=loader.handle("speaker_encoder", loaded.speaker_encoder) if loaded.speaker_encoder else None,
        dtype=loader.dtype,
    )


def voice_from_audio(
    ctx: PhaseContext, model: Qwen3TtsModel, *, reference: Audio, reference_text: str | None, x_vector_only_mode: bool
) -> Voice:
    """The voice of a recording; with its text, the recording's codes too."""
    if model.encoder is None or model.speaker_encoder is None:
        raise InputError("only Base models take a voice from audio; choose a Qwen3-TTS Base model")
    model.note(ctx)
    prepared = prepare_reference(reference.samples, reference.rate_hz)
    for note in prepared.notes:
        ctx.warn(note)
    x_vector = _x_vector(ctx, model.speaker_encoder, prepared.samples)
    if x_vector_only_mode or not reference_text:
        ctx.applied["x_vector_only_mode"] = True
        return Voice(kind="clone", x_vector=x_vector)
    codes = _codes(ctx, model.encoder, prepared.samples)
    return Voice(kind="clone", x_vector=x_vector, codes=codes, text=reference_text)


def _x_vector(ctx: PhaseContext, handle: ModelHandle, samples: Tensor) -> Tensor:
    module = handle.module
    assert isinstance(module, SpeakerEncoder)
    mel = slaney_log_mel(samples, module.config.mel)
    if len(mel) < module.least_frames:
        raise InputError(f"the reference has {len(mel)} mel frames, {module.least_frames} are needed; make it longer")

    def compute() -> Tensor:
        x_vector: Tensor = module(mel.to(ctx.device))
        return x_vector.float().cpu()

    return ctx.run("speaker encoder", [handle], compute, speaker_bytes(module, len(samples)))


def _codes(ctx: PhaseContext, handle: ModelHandle, samples: Tensor) -> Tensor:
    module = handle.module
    assert isinstance(module, CodecEncoder)
    return ctx.run(
        "codec encoder",
        [handle],
        lambda: module.encode(samples.to(ctx.device), ctx.check).cpu(),
        encoder_bytes(module, len(samples), torch.device(ctx.device)),
    )


def preset_voice(ctx: PhaseContext, model: Qwen3TtsModel, *, speaker: str) -> Voice:
    """The model's speaker of that name; "" for none."""
    if model.config.model_type != "custom_voice":
        raise InputError("only CustomVoice models have preset voices; choose a Qwen3-TTS CustomVoice model")
    return Voice(kind="preset", speaker=model.config.speaker(speaker) if speaker else "")


def designed_voice(ctx: PhaseContext, model: Qwen3TtsModel, *, description: str) -> Voice:
    """The voice that a description asks for; "" lets the model choose."""
    if model.config.model_type != "voice_design":
        raise InputError("only VoiceDesign models make a voice from a description; choose one of these")
    return Voice(kind="design", description=description)


def load_voice(ctx: PhaseContext, model: Qwen3TtsModel, *, voice_file: str) -> Voice:
    """The voice that was saved under that name."""
    voice = read_voice(model.voices, voice_file)
    voice.check(model.config)
    return voice


def save_voice(ctx: PhaseContext, model: Qwen3TtsModel, *, voice: Voice, save_voice_as: str) -> Voice:
    """The same voice, now also in a file."""
    voice.check(model.config)
    ctx.applied["voice_file"] = str(write_voice(voice, model.voices, save_voice_as))
    return voice


def talker(
    ctx: PhaseContext,
    model: Qwen3TtsModel,
    *,
    text: str,
    voice: Voice | None,
    language: str,
    instruct: str,
    do_sample: str | None,
    subtalker_dosample: str | None,
    non_streaming_mode: str | None,
    split_tokens: int,
    **numbers: int | float | None,
) -> Codes:
    """The text's frames of codes. numbers: temperature and the like under upstream's names, None: the model's own."""
    model.note(ctx)
    asked = GenerationOptions(
        do_sample=SWITCHES[do_sample],
        subtalker_dosample=SWITCHES[subtalker_dosample],
        **numbers,  # type: ignore[arg-type]
    )
    speech = Speech(
        text=text,
        voice=_chosen(ctx, model.config, voice, instruct),
        language=model.config.language(language),
        instruct=instruct,
        how=asked.or_else(model.config.generation).resolved(),
        non_streaming=SWITCHES[non_streaming_mode],
        split_tokens=split_tokens,
    )
    return write_codes(ctx, model.talker, model.config, model.tokenizer, speech)


def _chosen(ctx: PhaseContext, config: Qwen3TtsConfig, voice: Voice | None, instruct: str) -> Voice:
    """The voice to speak with, if the model can; without one, what the model does then."""
    if voice is None:
        if config.model_type == "base":
            raise InputError("a Base model needs a voice; give it a reference, or load a voice")
        if config.model_type == "custom_voice":
            ctx.warn("no speaker was chosen, so the model makes up a voice; connect Qwen3-TTS Preset Voice")
        return Voice(kind="preset" if config.model_type == "custom_voice" else "design")
    voice.check(config)
    if voice.description and instruct:
        raise InputError("the voice has a description, and an instruction is given too; give one of them")
    if instruct and not config.takes_style:
        ctx.warn("this model takes no instruction; the 1.7B CustomVoice and VoiceDesign models do")
    return voice


def decode(ctx: PhaseContext, model: Qwen3TtsModel, *, codes: Codes, sentence_silence: float) -> Audio:
    """The frames as audio, (1, length) at the codec's rate. Pieces of a split text are joined without clicks."""
    model.note(ctx)
    joiner = Joiner(model.codec.output_rate_hz, silence_seconds=sentence_silence)
    for index, piece in enumerate(codes.pieces):
        ctx.progress(index, len(codes.pieces))
        joiner.add(_decoded(ctx, model, piece.frames, piece.reference))
    ctx.progress(len(codes.pieces), len(codes.pieces))
    return Audio(joiner.finish(), model.codec.output_rate_hz)


def _decoded(ctx: PhaseContext, model: Qwen3TtsModel, frames: Tensor, reference: Tensor | None) -> Tensor:
    """(1, samples) of the frames alone, which sound as they do after the reference's."""
    module = model.decoder.module
    assert isinstance(module, CodecDecoder)
    whole = frames if reference is None else torch.cat((reference, frames), dim=1)
    samples = ctx.run(
        "codec decoder",
        [model.decoder],
        lambda: module.decode(whole.to(ctx.device), ctx.check).cpu(),
        decoder_bytes(module, whole.shape[1], torch.device(ctx.device)),
    )
    before = 0 if reference is None else reference.shape[1]
    cut = int(before / max(whole.shape[1], 1) * len(samples))  # in floating point, as upstream cuts
    return samples[cut:].reshape(1, -1)
