"""A text's codes: how long it is, in which chunks it is spoken, and each chunk's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from .chunks import chunk_text
from .config import OmniVoiceConfig
from .durations import Pace, estimated_frames
from .estimates import unmasking_bytes
from .instruct import instruction
from .network import Network
from .text import TextTokenizer, clean_text
from .unmask import Prompt, Unmasker, Unmasking

MOST_FRAMES = 100_000
"""Of a chunk, a little more than an hour: attention over more takes days."""


@dataclass(frozen=True)
class Voice:
    """Whose voice. codes: int64 (codebooks, frames) of a recording, on the CPU; text: what is said in it, "" if nobody
    knows; rms: how loud it was. attributes: as `parse_instruct` gives them."""

    codes: Tensor | None = None
    text: str = ""
    rms: float | None = None
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Codes:
    """Speech in chunks, int64 (codebooks, frames) on the CPU each. rms: of the reference; None if there was none."""

    chunks: tuple[Tensor, ...]
    rms: float | None


@dataclass(frozen=True, kw_only=True)
class Speech:
    """What is to be spoken, and how. language: an id, "" for none. duration: in seconds; None: as `speed` says.

    chunk_seconds: of each chunk of a text that takes more than threshold_seconds.
    """

    text: str
    voice: Voice
    language: str
    speed: float
    duration: float | None
    denoise: bool
    chunk_seconds: float
    threshold_seconds: float
    how: Unmasking


@dataclass(frozen=True)
class Said:
    """What a chunk follows: codes, and the text that they say."""

    codes: Tensor | None = None
    text: str = ""

    @property
    def pace(self) -> Pace:
        return Pace(self.text, self.codes.shape[1]) if self.codes is not None and self.text else Pace()

    def frames(self, text: str, speed: float = 1.0) -> int:
        """How many frames `text` takes, at so many times its pace."""
        return estimated_frames(text, self.pace, speed)


class Speaker:
    """Speaks with one model, at so many frames a second."""

    def __init__(self, config: OmniVoiceConfig, tokenizer: TextTokenizer, frame_rate_hz: int) -> None:
        self._config, self._tokenizer, self._rate_hz = config, tokenizer, frame_rate_hz

    def plan(self, speech: Speech) -> Plan:
        """In which chunks, and how long each is. InputError for a text with nothing to say in it, or with too much at
        once."""
        text, said = speech.text, Said(speech.voice.codes, speech.voice.text)
        if speech.duration is None:
            frames, speed = said.frames(text, speech.speed), speech.speed
        else:
            frames = max(1, int(speech.duration * self._rate_hz))
            speed = said.frames(text) / frames
        if frames <= int(speech.threshold_seconds * self._rate_hz):
            return self._checked(Plan((text,), (frames,)))
        chars = int(speech.chunk_seconds * self._rate_hz / (frames / len(text))) if text else 0
        chunks = tuple(chunk_text(text, chars))
        if not chunks:
            raise InputError("there is nothing to say in the text; write words")
        return self._checked(Plan(chunks, _frames(chunks, said, speed)))

    def _checked(self, plan: Plan) -> Plan:
        longest = max(plan.frames)
        if longest > MOST_FRAMES:
            raise InputError(
                f"the text takes {longest / self._rate_hz:,.0f} s at once, {MOST_FRAMES / self._rate_hz:,.0f} s are "
                "the most; lower the duration, raise the speed, or let it be spoken in chunks"
            )
        return plan

    def prompt(self, speech: Speech, text: str, said: Said, frames: int) -> Prompt:
        """Of one chunk."""
        denoise = speech.denoise and said.codes is not None
        style = self._tokenizer.style(
            speech.language, instruction(speech.voice.attributes, speech.text), denoise=denoise
        )
        spoken = self._tokenizer.spoken(clean_text(text, said.text if said.codes is not None else ""))
        return Prompt((*style, *spoken), said.codes, frames)

    def speak(self, ctx: PhaseContext, handle: ModelHandle, speech: Speech) -> Codes:
        """All chunks, one after the other: each follows the voice's recording, or without one the first chunk."""
        plan = self.plan(speech)
        said = Said(speech.voice.codes, speech.voice.text)
        chunks: list[Tensor] = []
        for text, frames in zip(plan.chunks, plan.frames, strict=True):
            prompt = self.prompt(speech, text, said, frames)
            chunks.append(self._made(ctx, handle, prompt, speech.how, len(chunks), len(plan.chunks)))
            if said.codes is None:
                said = Said(chunks[0], text)
        total = len(plan.chunks) * speech.how.num_step
        ctx.progress(total, total)
        return Codes(tuple(chunks), speech.voice.rms)

    def _made(
        self, ctx: PhaseContext, handle: ModelHandle, prompt: Prompt, how: Unmasking, index: int, chunks: int
    ) -> Tensor:
        if prompt.positions > self._config.most_positions:
            ctx.warn(
                f"a chunk and its prompt take {prompt.positions:,} positions, the model was made for "
                f"{self._config.most_positions:,}; shorten the text or the reference"
            )
        network = handle.module
        assert isinstance(network, Network)
        unmasker = Unmasker(network, [prompt], how, ctx.rng, ctx.check)
        device = torch.device(ctx.device)
        needed = unmasking_bytes(self._config, prompt, how, network.dtype, device)

        def tell(steps: int) -> None:
            ctx.progress(index * how.num_step + steps, chunks * how.num_step)

        (codes,) = ctx.run("model", [handle], lambda: unmasker.run(device, tell), needed)
        return codes


@dataclass(frozen=True)
class Plan:
    """chunks: the text's parts, at least one; frames: of each."""

    chunks: Sequence[str]
    frames: Sequence[int]


def _frames(chunks: Sequence[str], said: Said, speed: float) -> tuple[int, ...]:
    """Of each chunk. Without a recording the others follow the first one's pace, as they will follow its codes."""
    first, *others = chunks
    frames = said.frames(first, speed)
    pace = Pace(first, frames) if said.codes is None else said.pace
    return frames, *(estimated_frames(text, pace, speed) for text in others)
