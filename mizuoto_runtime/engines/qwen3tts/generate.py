"""The loop that writes frames of codes: the talker once a frame, the code predictor for each further code.

Order of sampling and of random draws as in qwen-tts 0.1.1 with transformers 4.57.3: code 0, then the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from ...errors import InputError
from ...lm.cache import CacheKind, KvCache, new_cache
from ...lm.graphs import GraphedSteps
from ...lm.positions import Masks, Rope, RopeTable
from ...lm.sampling import exponential_noise, penalise_repeats
from ...nn.finite import check_finite
from .config import SUPPRESSED, Generation, TalkerConfig
from .prompt import Prompt
from .talker import Talker

FEWEST_TOKENS = 2
"""The end isn't chosen before so many codes 0 (upstream's `min_new_tokens`)."""


@dataclass
class Progress:
    """Sequences on their way, one a row. pending: (rows, new positions, width) that the talker hasn't seen yet.

    peaks: the sum of the largest logits so far, which is finite as long as all of them are. frames: (rows, groups)
    each; lengths: frames of each row that has ended. Steps make a new `pending`, so a copy of this is a state to go
    back to, together with the cache's length.
    """

    pending: Tensor
    seen: Tensor
    peaks: Tensor
    frames: list[Tensor] = field(default_factory=list)
    lengths: dict[int, int] = field(default_factory=dict)
    done: bool = False

    def copy(self) -> Progress:
        return replace(self, frames=list(self.frames), lengths=dict(self.lengths))


class Writer:
    """Writes the frames of a batch of prompts.

    rng: a CPU generator; every draw is made from it in upstream's order, for all rows at once. cache: the talker's.
    graphs: replays the code predictor's steps; the talker's own see more positions each time, so they can't be.
    """

    def __init__(
        self,
        talker: Talker,
        prompts: Sequence[Prompt],
        how: Generation,
        rng: Generator,
        kv_cache: CacheKind = "dynamic",
        graphs: GraphedSteps | None = None,
    ) -> None:
        if how.max_new_tokens < 2:
            raise InputError(f"max_new_tokens is {how.max_new_tokens}; the last token is never played, so 2 at least")
        self.talker, self.how, self.rng = talker, how, rng
        self.config: TalkerConfig = talker.config
        rows, self._pads = _padded([prompt.rows for prompt in prompts])
        self._trailing = _trailing(prompts)
        self._pad = torch.stack([prompt.pad for prompt in prompts])[:, None]
        self.cache: KvCache = new_cache(kv_cache, self.config.decoder.layers)
        device = rows.device
        self._device = device
        self._rope = RopeTable(self.config.decoder, rows.dtype, device)
        self._predictor = _FramePredictor(talker, how, len(prompts), rows.dtype, device)
        self._graphs = graphs
        self._forbidden, self._forbidden_first = _forbidden(self.config, device)
        self._noise = _Noise(len(prompts), self.config, how, device)
        seen = torch.zeros(len(prompts), self.config.vocab, dtype=torch.bool, device=device)
        self.state = Progress(rows, seen, torch.zeros((), device=device))

    @property
    def ended(self) -> bool:
        """Whether every sequence has come to its end."""
        return self.state.done

    @property
    def finished(self) -> bool:
        """Whether no frame follows: the last of `max_new_tokens` never becomes one."""
        return self.state.done or len(self.state.frames) >= self.how.max_new_tokens - 1

    @torch.inference_mode()
    def frame(self) -> bool:
        """Write one frame for all rows; False if none follows. Waits for the device once."""
        if self.finished:
            return False
        state = self.state
        hidden, logits = self._step(state.pending)
        state.peaks = state.peaks + logits.amax()
        first = self._first_codes(logits)
        self._note_ends(first)
        if len(state.lengths) == len(first):
            state.done = True
            return False
        embedded = self.talker.model.codec_embedding(first[:, None])
        codes, embeddings, peaks = self._further_codes(
            torch.cat((hidden, embedded), dim=1), self._noise.further(self.rng)
        )
        state.peaks = state.peaks + peaks
        state.pending = torch.cat((embedded, *embeddings), dim=1).sum(1, keepdim=True) + self._following()
        state.frames.append(torch.stack((first, *codes), dim=1))
        return True

    def check_finite(self) -> None:
        """NotFinite if a logit wasn't, so that frames since then are no speech. Waits for the device."""
        check_finite(self.state.peaks, "the logits of codes")

    def drop_graphs(self) -> None:
        """Give back what captured steps hold."""
        if self._graphs is not None:
            self._graphs.drop()

    def codes(self) -> list[Tensor]:
        """(groups, frames) whole numbers on the CPU, of each row up to its end."""
        rows = len(self.state.pending)
        if not self.state.frames:
            return [torch.empty(self.config.groups, 0, dtype=torch.long)] * rows
        frames = torch.stack(self.state.frames, dim=-1).cpu()
        return [frames[row, :, : self.state.lengths.get(row, frames.shape[-1])].clone() for row in range(rows)]

    def _step(self, pending: Tensor) -> tuple[Tensor, Tensor]:
        new, before = pending.shape[1], self.cache.length_positions
        held = before + new
        masks = Masks(new, held, self._device, self._pads)
        return self.talker.step(pending, self._positions(before, held), masks, self.cache)

    def _positions(self, start: int, end: int) -> Rope:
        """Positions count from each row's first one that is no padding; what padding gets there doesn't matter."""
        if self._pads is None:
            return self._rope.span(start, end)
        positions = torch.arange(start, end, device=self._device)[None] - self._pads[:, None]
        return self._rope.at(positions.clamp(min=0), end)

    def _first_codes(self, logits: Tensor) -> Tensor:
        """(rows) codes 0; a row that has ended goes on with the end."""
        state = self.state
        logits = penalise_repeats(logits, state.seen, self.how.repetition_penalty)
        early = len(state.frames) < FEWEST_TOKENS
        logits = logits.masked_fill(self._forbidden_first if early else self._forbidden, -torch.inf)
        first = self.how.talker.choose(logits, self._noise.first(self.rng))
        if state.lengths:
            ended = torch.zeros(len(first), dtype=torch.bool)
            ended[list(state.lengths)] = True
            first = first.masked_fill(ended.to(self._device), self.config.ids.eos)
        state.seen = state.seen.scatter(1, first[:, None], True)
        return first

    def _further_codes(self, x: Tensor, noise: Tensor | None) -> tuple[list[Tensor], list[Tensor], Tensor]:
        inputs = (x,) if noise is None else (x, noise)
        if self._graphs is None:
            return self._predictor.codes(*inputs)
        return self._graphs.run("predictor", self._predictor.codes, *inputs)

    def _note_ends(self, first: Tensor) -> None:
        for row, code in enumerate(first.tolist()):
            if code == self.config.ids.eos:
                self.state.lengths.setdefault(row, len(self.state.frames))

    def _following(self) -> Tensor:
        """(rows, 1, width) of the text, to be added to the frame that is fed back next."""
        index = len(self.state.frames)
        return self._trailing[:, index : index + 1] if index < self._trailing.shape[1] else self._pad


class _FramePredictor:
    """Codes 1 … of a frame. Everything that depends on the position only is made once."""

    def __init__(self, talker: Talker, how: Generation, rows: int, dtype: torch.dtype, device: torch.device) -> None:
        self._predictor, self._sampling = talker.code_predictor, how.predictor
        config = talker.config
        table = RopeTable(config.predictor, dtype, device)
        spans = [(0, 2), *((start, start + 1) for start in range(2, config.groups))]
        self._ropes = [table.span(start, end) for start, end in spans]
        self._masks = [Masks(end - start, end, device) for start, end in spans]
        room = torch.empty(
            2,
            config.predictor.layers,
            rows,
            config.predictor.kv_heads,
            config.groups,
            config.predictor.head_dim,
            dtype=dtype,
            device=device,
        )
        self._caches = [_SpanCache(room, start, end) for start, end in spans]

    def codes(self, x: Tensor, noise: Tensor | None = None) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """(rows, 2, width) hidden state and code 0 → the further codes, (rows) each, their embeddings, and the sum of
        their largest logits.

        noise: (further codes, rows, codes), if they are chosen by chance.
        """
        codes: list[Tensor] = []
        embeddings: list[Tensor] = []
        peaks: list[Tensor] = []
        for step, table in enumerate(self._predictor.model.codec_embedding):
            logits = self._predictor(x, step, self._ropes[step], self._masks[step], self._caches[step])
            peaks.append(logits.amax())
            codes.append(self._sampling.choose(logits, None if noise is None else noise[step]))
            x = table(codes[-1][:, None])
            embeddings.append(x)
        return codes, embeddings, torch.stack(peaks).sum()


class _SpanCache:
    """Keys and values of a frame, as the step that adds the positions from `start` up to `end` sees them.

    room: (2, layers, rows, kv heads, positions, head_dim), the same for all steps; each overwrites its own part.
    """

    def __init__(self, room: Tensor, start: int, end: int) -> None:
        self._added = [(keys[:, :, start:end], values[:, :, start:end]) for keys, values in zip(*room, strict=True)]
        self._held = [(keys[:, :, :end], values[:, :, :end]) for keys, values in zip(*room, strict=True)]

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        added_keys, added_values = self._added[layer]
        added_keys.copy_(keys)
        added_values.copy_(values)
        return self._held[layer]


class _Noise:
    """The random numbers of each draw, made on the CPU in buffers that are used again, then copied to the device."""

    def __init__(self, rows: int, config: TalkerConfig, how: Generation, device: torch.device) -> None:
        self._device = device
        pinned = device.type == "cuda"
        further = config.groups - 1
        self._first = torch.empty(rows, config.vocab, pin_memory=pinned) if how.talker.sample else None
        shape = (further, rows, config.predictor_vocab)
        self._further = torch.empty(shape, pin_memory=pinned) if how.predictor.sample else None

    def first(self, rng: Generator) -> Tensor | None:
        """(rows, vocab) for code 0."""
        return None if self._first is None else self._on_device(exponential_noise(self._first, rng))

    def further(self, rng: Generator) -> Tensor | None:
        """(further codes, rows, codes); drawn one by one, as upstream does."""
        if self._further is None:
            return None
        for each in self._further:
            exponential_noise(each, rng)
        return self._on_device(self._further)

    def _on_device(self, noise: Tensor) -> Tensor:
        return noise.to(self._device, non_blocking=True)


def _padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Prompts of (positions, width), padded on the left with zeros, and by how much; None if by nothing."""
    longest = max(len(each) for each in rows)
    pads = [longest - len(each) for each in rows]
    batch = torch.stack([torch.nn.functional.pad(each, (0, 0, pad, 0)) for each, pad in zip(rows, pads, strict=True)])
    return batch, torch.tensor(pads, device=batch.device) if any(pads) else None


def _trailing(prompts: Sequence[Prompt]) -> Tensor:
    """(rows, longest, width); shorter ones go on with the text's pad."""
    longest = max(len(prompt.trailing) for prompt in prompts)
    return torch.stack(
        [torch.cat((each.trailing, each.pad.expand(longest - len(each.trailing), -1))) for each in prompts]
    )


def _forbidden(config: TalkerConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Codes that are never chosen, and those that aren't for the first tokens: (vocab) booleans each."""
    forbidden = torch.zeros(config.vocab, dtype=torch.bool)
    forbidden[max(0, config.vocab - SUPPRESSED) :] = True
    forbidden[config.ids.eos] = False
    first = forbidden.clone()
    first[config.ids.eos] = True
    return forbidden.to(device), first.to(device)
