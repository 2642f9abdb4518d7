"""Codes out of masks: in each step the network guesses all of them, and the surest guesses are kept.

Arithmetic and the order of random draws: `_generate_iterative` of omnivoice 0.2.1. Masked prediction (Chang et al.,
https://arxiv.org/abs/2202.04200), classifier-free guidance (Ho, Salimans, https://arxiv.org/abs/2207.12598).

What upstream computes and doesn't use isn't computed: logits are those of codes still masked, the unguided row isn't
padded to the guided one's length, and a step that keeps nothing runs no network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ...lm.decoder import RopeTable
from ...lm.packed import Ends, Packing
from .network import Network

KEPT_SHARE = 0.1
"""Of the codes, the likeliest: so many are considered if a code is chosen by chance."""
TINY = 1e-10


@dataclass(frozen=True, kw_only=True)
class Unmasking:
    """How codes are chosen, under upstream's names.

    guidance_scale: 0 for no guidance. t_shift: below 1, early steps keep less. layer_penalty_factor: how much later
    each further codebook comes. Temperatures of the places and of the codes that are chosen; 0: no chance.
    """

    num_step: int = 32
    guidance_scale: float = 2.0
    t_shift: float = 0.1
    layer_penalty_factor: float = 5.0
    position_temperature: float = 5.0
    class_temperature: float = 0.0

    @property
    def guided(self) -> bool:
        return self.guidance_scale != 0


@dataclass(frozen=True)
class Prompt:
    """What stands before the frames to make. ids: of the text; reference: (codebooks, frames) codes; frames: to make.

    ids and reference are read by the guided row only.
    """

    ids: tuple[int, ...]
    reference: Tensor | None
    frames: int

    @property
    def positions(self) -> int:
        """Of the guided row."""
        return len(self.ids) + (0 if self.reference is None else self.reference.shape[1]) + self.frames


def kept_by_step(codes: int, how: Unmasking) -> list[int]:
    """How many of so many codes are kept in each step; all of them together."""
    times = torch.linspace(0.0, 1.0, how.num_step + 1)
    times = how.t_shift * times / (1 + (how.t_shift - 1) * times)
    shares = [after - before for before, after in zip(times.tolist(), times.tolist()[1:], strict=False)]
    left, counts = codes, []
    for share in shares[:-1]:
        counts.append(min(math.ceil(codes * share), left))
        left -= counts[-1]
    return [*counts, left]


class Unmasker:
    """A batch of prompts on its way from masks to codes; `run` goes on from the last whole step.

    rng: a CPU generator. check: raises to cancel; called between layers. codes: (codebooks, frames) whole numbers on
    the CPU, of each prompt.
    """

    def __init__(
        self,
        network: Network,
        prompts: Sequence[Prompt],
        how: Unmasking,
        rng: Generator,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.done = 0
        self._check = check
        self._network, self._prompts, self._how, self._rng = network, prompts, how, rng
        config = network.config
        self._mask = config.mask
        self.codes = [torch.full((config.codebooks, prompt.frames), self._mask) for prompt in prompts]
        self._kept = [kept_by_step(codes.numel(), how) for codes in self.codes]
        self._penalty = torch.arange(config.codebooks)[:, None] * how.layer_penalty_factor
        self._random = rng.get_state()

    @torch.inference_mode()
    def run(self, device: torch.device | str, tell: Callable[[int], None] = lambda done: None) -> list[Tensor]:
        """All steps that are left; returns the codes. tell: called before each step with the number of those done."""
        self._rng.set_state(self._random)
        rows = _Rows(self._network, self._prompts, torch.device(device), guided=self._how.guided)
        for step in range(self.done, self._how.num_step):
            tell(step)
            counts = [kept[step] for kept in self._kept]
            if any(counts):
                self._step(rows, counts)
            self._random, self.done = self._rng.get_state(), step + 1
        return self.codes

    def _step(self, rows: _Rows, counts: Sequence[int]) -> None:
        """A step's codes take the place of those before only once all of them are there."""
        places = [(codes == self._mask) & bool(count) for codes, count in zip(self.codes, counts, strict=True)]
        hidden = rows.hidden(self.codes, self._check)
        noise = [self._noise(codes, bool(count)) for codes, count in zip(self.codes, counts, strict=True)]
        guesses, scores = self._guess(hidden, places, noise)
        made = []
        for index, count in enumerate(counts):
            codes = self.codes[index].clone()
            if count:
                chosen = self._surest(scores[index], noise[index].position, count)
                codes.view(-1)[chosen] = guesses[index].view(-1)[chosen]
            made.append(codes)
        self.codes = made

    def _noise(self, codes: Tensor, used: bool) -> _Noise:
        """Drawn as upstream does, for all places, of each prompt in turn: first for the codes, then for the places."""
        how = self._how
        code = position = None
        if used and how.class_temperature > 0:
            code = gumbel(torch.rand(*codes.shape, self._network.config.codes, generator=self._rng))
        if used and how.position_temperature > 0:
            position = gumbel(torch.rand(codes.shape, generator=self._rng))
        return _Noise(code, position)

    def _guess(
        self, hidden: Sequence[tuple[Tensor, ...]], places: Sequence[Tensor], noise: Sequence[_Noise]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """For each prompt the guessed codes and how sure they are, (codebooks, frames).

        Outside of `places` that is -inf.
        """
        device = hidden[0][0].device
        frames = [[place.nonzero()[:, 0].to(device) for place in each] for each in places]
        asked = [
            torch.cat([row[own[book]] for item, own in zip(hidden, frames, strict=True) for row in item])
            for book in range(self._network.config.codebooks)
        ]
        logits = self._network.audio_heads(asked)
        guesses = [torch.zeros_like(codes) for codes in self.codes]
        scores = [torch.full(codes.shape, -torch.inf) for codes in self.codes]
        for book, of_book in enumerate(logits):
            sizes = [len(own[book]) for item, own in zip(hidden, frames, strict=True) for _ in item]
            parts = iter(of_book.split(sizes))
            for index, item in enumerate(hidden):
                log_probabilities = self._guided([next(parts) for _ in item])
                there = places[index][book]
                code_noise = noise[index].code
                own_noise = None if code_noise is None else code_noise[book][there].to(device)
                best, guess = self._choose(log_probabilities, own_noise)
                guesses[index][book, there], scores[index][book, there] = guess.cpu(), best.cpu()
        return guesses, scores

    def _guided(self, logits: Sequence[Tensor]) -> Tensor:
        """Logits (places, codes) of the guided row, and of the unguided one → log-probabilities, the mask's -inf."""
        guided = logits[0].log_softmax(-1)
        if len(logits) > 1:
            unguided = logits[1].log_softmax(-1)
            guided = (guided + self._how.guidance_scale * (guided - unguided)).log_softmax(-1)
        guided[:, self._mask] = -torch.inf
        return guided

    def _choose(self, log_probabilities: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """How likely the likeliest code is, and which code is chosen: (places) each."""
        best, likeliest = log_probabilities.max(dim=-1)
        if noise is None:
            return best, likeliest
        considered = math.ceil(KEPT_SHARE * log_probabilities.shape[-1])
        likely, where = log_probabilities.topk(considered, dim=-1)
        only = torch.full_like(log_probabilities, -torch.inf).scatter_(-1, where, likely)
        return best, (only / self._how.class_temperature + noise).argmax(dim=-1)

    def _surest(self, scores: Tensor, noise: Tensor | None, count: int) -> Tensor:
        """The indices, codebook by codebook, of the `count` surest guesses."""
        scores = scores - self._penalty
        if noise is not None:
            scores = scores / self._how.position_temperature + noise
        return scores.flatten().topk(count).indices


@dataclass(frozen=True)
class _Noise:
    """(codebooks, frames, codes) and (codebooks, frames), each only if something is chosen by chance."""

    code: Tensor | None
    position: Tensor | None


def gumbel(uniform: Tensor) -> Tensor:
    """Numbers from 0 to 1 → Gumbel's noise."""
    return -torch.log(-torch.log(uniform + TINY) + TINY)


class _Rows:
    """A batch's rows, packed: of each prompt the guided one, and the unguided one if there is guidance.

    What stands before the frames is embedded once.
    """

    def __init__(self, network: Network, prompts: Sequence[Prompt], device: torch.device, *, guided: bool) -> None:
        self._network, self._device, self._guided = network, device, guided
        self._before = [self._embedded(prompt) for prompt in prompts]
        lengths, counts = [], []
        for prompt in prompts:
            lengths += [prompt.positions, prompt.frames] if guided else [prompt.positions]
            counts += [prompt.frames] * (1 + guided)
        table = RopeTable(network.config.decoder, network.dtype, device)
        self._packing: Packing = Packing.of(lengths, table)
        self._ends: Ends = self._packing.ends(counts)

    def _embedded(self, prompt: Prompt) -> Tensor:
        text = self._network.text(prompt.ids, self._device)
        if prompt.reference is None:
            return text
        return torch.cat((text, self._network.frames(prompt.reference.to(self._device))))

    def hidden(self, codes: Sequence[Tensor], check: Callable[[], None]) -> list[tuple[Tensor, ...]]:
        """Of each prompt the hidden states of its frames, (frames, width), guided and perhaps unguided."""
        parts = []
        for before, each in zip(self._before, codes, strict=True):
            frames = self._network.frames(each.to(self._device))
            parts += [before, frames, frames] if self._guided else [before, frames]
        states = self._network(torch.cat(parts), self._packing, self._ends, check).split(self._ends.counts)
        each_item = 1 + self._guided
        return [tuple(states[first : first + each_item]) for first in range(0, len(states), each_item)]
