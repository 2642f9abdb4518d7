"""What generation begins with: text and codec rows, added in pairs. The layouts are those of qwen-tts 0.1.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .config import Qwen3TtsConfig
from .talker import Talker
from .text import TextIds


@dataclass(frozen=True, kw_only=True)
class Request:
    """One text to speak. language: as the config names it, "auto" for none; reference: the ids of its text.

    x_vector: (width) of who speaks; reference_codes: (groups, frames) of what they said.
    """

    text: TextIds
    language: str = "auto"
    instruction: tuple[int, ...] = ()
    speaker: str = ""
    x_vector: Tensor | None = None
    reference: tuple[int, ...] = ()
    reference_codes: Tensor | None = None
    non_streaming: bool = False


@dataclass(frozen=True)
class Prompt:
    """rows: (positions, width) embeddings to begin with. trailing: (n, width), one to be added to each frame that is
    fed back; pad: (width), to be added when they are used up."""

    rows: Tensor
    trailing: Tensor
    pad: Tensor


def build_prompt(talker: Talker, config: Qwen3TtsConfig, request: Request, device: torch.device) -> Prompt:
    """The prompt of one text, on `device` in the talker's dtype."""
    rows = _Rows(talker, config, request, device)
    begin = torch.cat((rows.instruction, rows.role, rows.head()))
    following, trailing = rows.spoken() if request.reference_codes is None else rows.continued(request.reference_codes)
    return Prompt(torch.cat((begin, following)), trailing, rows.pad[0])


class _Rows:
    """The embeddings that a prompt is made of. bos, eos, pad: (1, width) of the text's own; all others (n, width)."""

    def __init__(self, talker: Talker, config: Qwen3TtsConfig, request: Request, device: torch.device) -> None:
        self._talker, self._config, self._request, self._device = talker, config, request, device
        self._ids = config.talker.ids
        parts = (
            request.instruction,
            request.text.role,
            request.reference,
            request.text.ids,
            (config.tts_bos,),
            (config.tts_eos,),
            (config.tts_pad,),
        )
        projected = talker.text([each for part in parts for each in part], device)
        split = torch.split(projected, [len(part) for part in parts])
        self.instruction, self.role, self.reference, self.text, self.bos, self.eos, self.pad = split

    def head(self) -> Tensor:
        """Language and speaker, each with a text pad, then the codec's pad with the text's beginning."""
        tags = self._codec(_tags(self._config, self._request))
        speaker = self._speaker()
        codec = torch.cat([tags, *([] if speaker is None else [speaker]), self._codec([self._ids.pad])])
        text = torch.cat((self.pad.expand(len(codec) - 1, -1), self.bos))
        return text + codec

    def spoken(self) -> tuple[Tensor, Tensor]:
        """The text's rows and what trails them."""
        bos = self._codec([self._ids.bos])
        if self._request.non_streaming:
            text = torch.cat((self.text, self.eos)) + self._codec([self._ids.pad])
            return torch.cat((text, self.pad + bos)), self.pad
        return self.text[:1] + bos, torch.cat((self.text[1:], self.eos))

    def continued(self, reference_codes: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of a reference with its text and the text to speak, and what trails them."""
        frames = self._talker.frames(reference_codes.to(self._device, torch.long))
        text = torch.cat((self.reference, self.text, self.eos))
        codec = torch.cat((self._codec([self._ids.bos]), frames))
        if self._request.non_streaming:
            return torch.cat((text + self._codec([self._ids.pad]), codec + self.pad)), self.pad
        if len(text) > len(codec):
            return text[: len(codec)] + codec, text[len(codec) :]
        padded = torch.cat((text, self.pad.expand(len(codec) - len(text), -1)))
        return padded + codec, self.pad

    def _codec(self, ids: Sequence[int]) -> Tensor:
        return self._talker.codec(ids, self._device)

    def _speaker(self) -> Tensor | None:
        if self._request.x_vector is not None:
            return self._request.x_vector.to(self._device, self.pad.dtype)[None]
        if self._request.speaker:
            return self._codec([self._config.talker.speakers[self._request.speaker]])
        return None


def _tags(config: Qwen3TtsConfig, request: Request) -> list[int]:
    """Which language, if any: a speaker's dialect goes before "chinese" and "auto"."""
    ids, talker, language = config.talker.ids, config.talker, request.language
    if language in ("auto", "chinese"):
        language = talker.dialects.get(request.speaker, language)
    if language == "auto":
        return [ids.nothink, ids.think_bos, ids.think_eos]
    return [ids.think, ids.think_bos, talker.languages[language], ids.think_eos]
