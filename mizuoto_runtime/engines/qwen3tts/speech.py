"""A text's frames of codes, piece by piece, in steps that can be run again if memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...errors import InputError
from ...lm.cuda_graphs import CudaCapturer
from ...lm.graphs import GraphedSteps
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from ...text.sentences import split_sentences
from .config import Generation, Qwen3TtsConfig
from .estimates import FRAMES_PER_TOKEN, most_tokens, talker_bytes
from .generate import Writer
from .prompt import Request, build_prompt
from .talker import Talker
from .text import TextTokenizer
from .voices import Voice

STEP_FRAMES = 25
HEAD_POSITIONS = 32
MOST_POSITIONS = 32_768
"""Of a prompt: what upstream's configuration gives the model (`max_position_embeddings`)."""


@dataclass(frozen=True, kw_only=True)
class Speech:
    """What is to be spoken, and how. non_streaming: None as upstream does for the voice's kind."""

    text: str
    voice: Voice
    language: str
    instruct: str
    how: Generation
    non_streaming: bool | None
    split_tokens: int


@dataclass(frozen=True)
class Piece:
    """frames: int64 (groups, frames) on the CPU; reference: those of the voice, which are decoded before them."""

    frames: Tensor
    reference: Tensor | None


@dataclass(frozen=True)
class Codes:
    """A text's frames, in pieces."""

    pieces: tuple[Piece, ...]


def write_codes(
    ctx: PhaseContext, handle: ModelHandle, config: Qwen3TtsConfig, tokenizer: TextTokenizer, speech: Speech
) -> Codes:
    """The frames of the whole text, each piece with the same voice."""
    requests = [
        _request(config, tokenizer, speech, text) for text in split_text(tokenizer, speech.text, speech.split_tokens)
    ]
    progress = _Progress(ctx, [_expected_frames(request) for request in requests])
    pieces = []
    for index, request in enumerate(requests):
        progress.begin(index)
        pieces.append(_Piece(ctx, handle, config, request, speech.how, progress).write())
    progress.end()
    return Codes(tuple(pieces))


def split_text(tokenizer: TextTokenizer, text: str, most: int) -> list[str]:
    """The text in pieces of whole sentences with up to `most` tokens each; 0, or a short text: as it is."""
    if not most or len(tokenizer.spoken(text).ids) <= most:
        return [text]
    return list(_gathered(tokenizer, split_sentences(text, max_chars=max(1, most)), most))


def _gathered(tokenizer: TextTokenizer, sentences: list[str], most: int) -> Iterator[str]:
    """Sentences put together while they stay within `most` tokens."""
    together, tokens = "", 0
    for sentence in sentences:
        added = len(tokenizer.encode(sentence))
        if together and tokens + added > most:
            yield together
            together, tokens = "", 0
        between = " " if together and together[-1].isascii() else ""
        together, tokens = together + between + sentence, tokens + added
    if together:
        yield together


def _request(config: Qwen3TtsConfig, tokenizer: TextTokenizer, speech: Speech, text: str) -> Request:
    voice = speech.voice
    style = voice.description or speech.instruct
    cloned = voice.kind == "clone"
    request = Request(
        text=tokenizer.spoken(text),
        language=speech.language,
        instruction=tokenizer.instruction(style) if config.takes_style else (),
        speaker=voice.speaker,
        x_vector=voice.x_vector,
        reference=tokenizer.reference(voice.text) if voice.codes is not None else (),
        reference_codes=voice.codes,
        non_streaming=not cloned if speech.non_streaming is None else speech.non_streaming,
    )
    if _prompt_positions(request) > MOST_POSITIONS:
        raise InputError(
            f"the prompt would have {_prompt_positions(request):,} positions, the model takes {MOST_POSITIONS:,}: "
            f"{len(request.text.ids):,} tokens of text, {len(request.instruction):,} of the instruction or "
            f"description, {len(request.reference):,} of the reference's text; shorten these, or let split_tokens "
            "split the text"
        )
    return request


def _prompt_positions(request: Request) -> int:
    """At most so many."""
    reference = 0 if request.reference_codes is None else request.reference_codes.shape[1]
    texts = len(request.text.ids) + len(request.instruction) + len(request.reference)
    return HEAD_POSITIONS + texts + reference


def _expected_frames(request: Request) -> int:
    """By the pace of the reference, if its text is known."""
    tokens = len(request.text.ids)
    if request.reference_codes is not None and request.reference:
        return max(1, round(tokens * request.reference_codes.shape[1] / len(request.reference)))
    return FRAMES_PER_TOKEN * max(1, tokens)


class _Progress:
    """How far the request is. A piece counts as it was expected until it is longer, or done."""

    def __init__(self, ctx: PhaseContext, expected: list[int]) -> None:
        self._ctx = ctx
        self._frames = expected
        self._index = 0

    def begin(self, index: int) -> None:
        self._index = index

    def tell(self, frames: int) -> None:
        """Of the piece that is being written; also a point where a cancel is noticed."""
        self._frames[self._index] = max(self._frames[self._index], frames + 1)
        self._ctx.progress(sum(self._frames[: self._index]) + frames, sum(self._frames))

    def finish(self, frames: int) -> None:
        self._frames[self._index] = frames

    def end(self) -> None:
        self._ctx.progress(sum(self._frames), sum(self._frames))


class _Piece:
    """One piece of the text on its way."""

    def __init__(
        self,
        ctx: PhaseContext,
        handle: ModelHandle,
        config: Qwen3TtsConfig,
        request: Request,
        how: Generation,
        progress: _Progress,
    ) -> None:
        self._ctx, self._handle, self._config = ctx, handle, config
        self._request, self._asked, self._progress = request, how, progress
        self._how = replace(how, max_new_tokens=most_tokens(len(request.text.ids), how.max_new_tokens))

    def write(self) -> Piece:
        """All frames of the piece."""
        writer = self._ctx.run("prompt", [self._handle], self._begin, self._memory_bytes(0))
        while not writer.finished:
            self._extend(writer)
        frames = writer.codes()[0]
        self._progress.finish(frames.shape[1])
        if not writer.ended:
            self._ctx.warn(self._unended(frames.shape[1]))
        return Piece(frames, self._request.reference_codes)

    def _begin(self) -> Writer:
        talker = self._handle.module
        assert isinstance(talker, Talker)
        prompt = build_prompt(talker, self._config, self._request, torch.device(self._ctx.device))
        return Writer(talker, [prompt], self._how, self._ctx.rng, self._ctx.kv_cache, self._graphs())

    def _graphs(self) -> GraphedSteps | None:
        """What captures steps, where that is possible and wanted."""
        if not self._ctx.cuda_graphs:
            return None
        return GraphedSteps(self._handle, CudaCapturer(torch.device(self._ctx.device)), self._ctx.warn)

    def _extend(self, writer: Writer) -> None:
        """A step of some frames, begun each time from the state that is there now."""
        before, held = writer.state.copy(), writer.cache.length_positions
        wanted = len(before.frames) + STEP_FRAMES
        attempts = 0

        def step() -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1:
                writer.drop_graphs()
            writer.cache.crop(held)
            writer.state = before.copy()
            while len(writer.state.frames) < wanted and not writer.finished:
                self._progress.tell(len(writer.state.frames))
                writer.frame()

        self._ctx.run("generate", [self._handle], step, self._memory_bytes(writer.cache.held_bytes))
        writer.check_finite()

    def _memory_bytes(self, held_bytes: int) -> int:
        prompt = _prompt_positions(self._request)
        talker = self._handle.module
        assert isinstance(talker, Talker)
        needed = talker_bytes(talker.config, prompt, self._how.max_new_tokens, self._ctx.kv_cache, talker.dtype)
        return max(0, needed - held_bytes)

    def _unended(self, frames: int) -> str:
        seconds = frames / 12.5
        if self._how.max_new_tokens < self._asked.max_new_tokens:
            return (
                f"the model found no end: it was stopped after {frames} frames ({seconds:.1f} seconds), more than "
                f"{len(self._request.text.ids)} tokens of text can take; try another seed, or a clearer text"
            )
        return f"the speech was cut off after {frames} frames ({seconds:.1f} seconds) by max_new_tokens; raise it"
