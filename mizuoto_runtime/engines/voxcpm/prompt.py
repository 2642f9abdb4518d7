"""What generation begins with: a text, the sound of a voice, and sound to go on from. The layouts are upstream's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from .config import VoxCpmConfig
from .text import AUDIO_START, REFERENCE_END, REFERENCE_START, TextTokenizer


@dataclass(frozen=True, kw_only=True)
class Voice:
    """Who speaks. reference: what it sounds like; prompt: what the speech goes on from; prompt_text: its text.

    Both sounds are float32 (patches, patch, latent) on the CPU. rate_hz: that at which their model hears.
    """

    reference: Tensor | None = None
    prompt: Tensor | None = None
    prompt_text: str = ""
    rate_hz: int = 0

    def check(self, config: VoxCpmConfig) -> None:
        """InputError if a model with this configuration can't speak with the voice."""
        if self.reference is not None and not config.second:
            raise InputError("the voice is VoxCPM 2's, this is an earlier model; connect one model to both nodes")
        own = (config.patch, config.latent)
        for sound in (self.reference, self.prompt):
            if sound is not None and tuple(sound.shape[1:]) != own:
                raise InputError(
                    f"the voice has patches of {tuple(sound.shape[1:])}, this model's are {own}; connect one model to "
                    "both nodes"
                )
        if self.rate_hz != config.vae.input_rate_hz:
            raise InputError(
                f"the voice is one of a model that hears {self.rate_hz:,} Hz, this one hears "
                f"{config.vae.input_rate_hz:,} Hz; connect one model to both nodes"
            )


@dataclass(frozen=True)
class Prompt:
    """ids: of the text, a prompt's before it and the audio start behind it. spoken: ids of the text alone.

    reference, continued: as in `Voice`.
    """

    ids: tuple[int, ...]
    spoken: int
    reference: Tensor | None = None
    continued: Tensor | None = None

    @classmethod
    def of(cls, tokenizer: TextTokenizer, text: str, voice: Voice | None) -> Prompt:
        """The texts are put together without a space between."""
        voice = voice or Voice()
        ids = tokenizer.encode(voice.prompt_text + text if voice.prompt is not None else text)
        return cls((*ids, AUDIO_START), len(tokenizer.encode(text)), voice.reference, voice.prompt)

    @property
    def positions(self) -> int:
        reference = 0 if self.reference is None else len(self.reference) + 2
        return reference + len(self.ids) + (0 if self.continued is None else len(self.continued))

    def parts(self) -> list[Sequence[int] | Tensor]:
        """Its parts in their order: ids of text, or patches of sound."""
        parts: list[Sequence[int] | Tensor] = [self.ids]
        if self.reference is not None:
            parts = [(REFERENCE_START,), self.reference, (REFERENCE_END, *self.ids)]
        return parts if self.continued is None else [*parts, self.continued]

    def context(self, config: VoxCpmConfig) -> Tensor:
        """(patches, patch, latent): the last patches of sound, which are decoded before what follows them.

        None if the prompt ends with text. If it ends with sound, the reference's count too, as they do upstream.
        """
        if self.continued is None:
            return torch.empty(0, config.patch, config.latent)
        sound = [each for each in (self.reference, self.continued) if each is not None]
        return torch.cat(sound)[-config.context_patches :]
