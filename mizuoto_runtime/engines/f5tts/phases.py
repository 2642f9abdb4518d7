"""F5-TTS at work: a reference's voice, mel spectrograms of a text or of an edited recording, and their sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...library import ModelFiles
from ...loader import Loader
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from ...types import Audio
from .config import RATE_HZ, Architecture, MelKind
from .cross_fade import cross_fade
from .durations import plan_frames
from .edit import cut, plan_edit
from .estimates import transformer_bytes, vocoder_bytes
from .mel import least_samples, log_mel
from .network import Network
from .reference import Reference, prepare_reference, prepare_whole, restore_level
from .sampler import Sampling, Solver, batch_of, draw_noise
from .spans import parse_durations, parse_spans
from .text import Vocabulary, chunk_text, finish_reference_text, max_chars, space_reference_text, to_tokens
from .vocos import Vocos
from .weights import load_modules

TILES = "decoding in tiles"


@dataclass(frozen=True)
class F5TtsModel:
    """An open model. vocoder: None for models of BigVGAN's mel spectrograms.

    dtype: what the transformer computes in at the user's wish, "" for as stored.
    """

    architecture: Architecture
    vocabulary: Vocabulary
    transformer: ModelHandle
    vocoder: ModelHandle | None
    dtype: str = ""


@dataclass(frozen=True)
class Voice:
    """A reference and what is said in it, ended as a sentence."""

    sound: Reference
    text: str


@dataclass(frozen=True)
class Mel:
    """Speech in pieces, (frames, bands) float32 on the CPU each.

    rms: how loud the speech was from which it was made. cross_fade_seconds: how long pieces overlap.
    """

    pieces: tuple[Tensor, ...]
    kind: MelKind
    rms: float
    cross_fade_seconds: float


def load(files: ModelFiles, loader: Loader) -> F5TtsModel:
    """Open the model at `files.path`. ModelFileError says what is wrong with its files."""
    assert files.path is not None
    loaded = load_modules(files.path, getattr(torch, loader.dtype) if loader.dtype else None)
    network = loaded.network
    transformer = loader.handle("transformer", network, many_rows=[network.blocks])
    transformer.mark(network.text.tokens, "gather")
    for unit in network.once():
        transformer.mark(unit, "cold")
    vocoder = loader.handle("vocoder", loaded.vocoder) if loaded.vocoder else None
    return F5TtsModel(loaded.architecture, loaded.vocabulary, transformer, vocoder, loader.dtype)


def reference(ctx: PhaseContext, model: F5TtsModel, *, reference: Audio, reference_text: str | None) -> Voice:
    """The voice of a recording. InputError if its transcript is missing."""
    text = finish_reference_text(reference_text or "")
    sound = prepare_reference(reference.samples, reference.rate_hz)
    for note in sound.notes:
        ctx.warn(note)
    return Voice(sound, text)


def sample(
    ctx: PhaseContext,
    model: F5TtsModel,
    *,
    text: str,
    voice: Voice,
    speed: float,
    fix_duration: float | None,
    cross_fade_duration: float,
    **how: object,
) -> Mel:
    """The text in the voice of the reference, piece by piece. how: the parameters of `Sampling`."""
    sound = voice.sound
    chunks = chunk_text(text, max_chars(voice.text, sound.seconds, speed))
    if not any(chunks):
        raise InputError("there is nothing to say in the text; write words")
    before = space_reference_text(voice.text)
    frames = plan_frames(
        chunks,
        sound.frames,
        before,
        speed=speed,
        fix_duration=fix_duration,
        cross_fade_seconds=cross_fade_duration,
    )
    if min(count for count, chunk in zip(frames, chunks, strict=True) if chunk) <= sound.frames:
        ctx.warn(_too_short(sound, fix_duration))
    mel = _mel(model, sound.samples, "reference")
    sampler = _Sampler(ctx, model, _sampling(how), len(chunks))
    pieces = [
        sampler.make(mel, model.vocabulary.to_ids(to_tokens(before + chunk)), length)[sound.frames :]
        for chunk, length in zip(chunks, frames, strict=True)
    ]
    sampler.end()
    return Mel(tuple(pieces), model.architecture.mel_spec_type, sound.rms, cross_fade_duration)


def _too_short(sound: Reference, fix_duration: float | None) -> str:
    seconds = len(sound.samples) / RATE_HZ
    wanted = "the text's length" if fix_duration is None else f"a fixed duration of {fix_duration:g} s"
    return f"{wanted} leaves no time beside the reference's {seconds:.1f} s, which count; the text was cut short"


def _sampling(how: dict[str, object]) -> Sampling:
    return Sampling(**how)  # type: ignore[arg-type]


def edit(
    ctx: PhaseContext,
    model: F5TtsModel,
    *,
    recording: Audio,
    text: str,
    parts_to_edit: str,
    part_durations: str,
    **how: object,
) -> Mel:
    """The recording with its spans spoken anew, so that all of it says `text`. how: the parameters of `Sampling`."""
    spans, seconds = parse_spans(parts_to_edit), parse_durations(part_durations)
    sound = prepare_whole(recording.samples, recording.rate_hz)
    for note in sound.notes:
        ctx.warn(note)
    mel = _mel(model, sound.samples, "recording")
    condition, kept = cut(mel, plan_edit(len(mel), spans, seconds))
    sampler = _Sampler(ctx, model, _sampling(how), 1)
    made = sampler.make(condition, model.vocabulary.to_ids(to_tokens(text)), len(condition), kept[None])
    sampler.end()
    return Mel((made,), model.architecture.mel_spec_type, sound.rms, 0.0)


def _mel(model: F5TtsModel, samples: Tensor, what: str) -> Tensor:
    """(frames, bands) float32."""
    architecture = model.architecture
    least = least_samples(architecture.mel_spec_type)
    if len(samples) < least:
        raise InputError(
            f"the {what} is {len(samples):,} samples long at {RATE_HZ:,} Hz, {least:,} are needed; make it longer"
        )
    return log_mel(samples, architecture.mel_spec_type, architecture.mel_dim)


class _Sampler:
    """Samples one piece after another, all from the request's generator."""

    def __init__(self, ctx: PhaseContext, model: F5TtsModel, how: Sampling, pieces: int) -> None:
        self._ctx, self._model, self._how = ctx, model, how
        self._done, self._total = 0, pieces * how.nfe_step
        if model.dtype:
            ctx.applied["dtype"] = model.dtype

    def make(self, condition: Tensor, ids: Sequence[int], frames: int, kept: Tensor | None = None) -> Tensor:
        """(frames, bands) float32, the condition's frames included. kept: see `batch_of`."""
        handle, ctx = self._model.transformer, self._ctx
        network = handle.module
        assert isinstance(network, Network)
        batch = batch_of([condition], [ids], [frames], kept)
        solver = Solver(network, batch, self._how, draw_noise(batch, network.dtype, [ctx.rng]), ctx.check)
        device = torch.device(ctx.device)
        needed = transformer_bytes(self._model.architecture, 1, int(batch.frames), self._how, network.dtype, device)
        made = ctx.run("transformer", [handle], lambda: solver.run(device, self._tell), needed)
        self._done += self._how.nfe_step
        return made[0].float()

    def _tell(self, steps: int) -> None:
        self._ctx.progress(self._done + steps, self._total)

    def end(self) -> None:
        self._ctx.progress(self._total, self._total)


def vocoder(ctx: PhaseContext, model: F5TtsModel, *, mel: Mel) -> Audio:
    """The speech as audio, (1, length) at 24,000 Hz, as loud as the reference was."""
    if model.vocoder is None or mel.kind != "vocos":
        raise InputError("this model's mel spectrograms are BigVGAN's, for which there is no vocoder here yet")
    waves = []
    for index, piece in enumerate(mel.pieces):
        ctx.progress(index, len(mel.pieces))
        waves.append(restore_level(_decoded(ctx, model.vocoder, piece), mel.rms))
    ctx.progress(len(mel.pieces), len(mel.pieces))
    return Audio(cross_fade(waves, mel.cross_fade_seconds, RATE_HZ)[None], RATE_HZ)


def _decoded(ctx: PhaseContext, handle: ModelHandle, mel: Tensor) -> Tensor:
    """(frames, bands) → (samples)."""
    module = handle.module
    assert isinstance(module, Vocos)

    def by(decode: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
        return lambda: decode(mel[None].to(ctx.device))[0].cpu()

    whole = by(lambda frames: module(frames, ctx.check))
    tiled = by(lambda frames: module.tiled(frames, ctx.check))
    needed = vocoder_bytes(module.config, len(mel))
    return ctx.run("vocoder", [handle], whole, needed, fallback=(TILES, tiled))
