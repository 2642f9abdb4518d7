"""Codes out of masks: in each step the network guesses all of them, and the surest guesses are kept.

Arithmetic and the order of random draws: `_generate_iterative` of omnivoice 0.2.1. Masked prediction (Chang et al.,
https://arxiv.org/abs/2202.04200), classifier-free guidance (Ho, Salimans, https://arxiv.org/abs/2207.12598).

What upstream computes and doesn't use isn't computed: logits are those of the frames to make, probabilities those of
codes still masked, the unguided row isn't padded to the guided one's length, and a step that keeps nothing runs no
network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ...lm.packed import Ends, Packing
from ...lm.positions import RopeTable
from ...nn.finite import check_finite
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
        logits = rows.logits(self.codes, self._check)
        made = []
        for codes, own, count in zip(self.codes, logits, counts, strict=True):
            made.append(self._with_surest(codes, own, count) if count else codes)
        self.codes = made

    def _with_surest(self, codes: Tensor, logits: tuple[Tensor, ...], count: int) -> Tensor:
        """One prompt's codes with the `count` surest guesses among them. logits: see `_Rows.logits`."""
        noise = self._noise(codes)
        guesses, scores = self._guess(codes == self._mask, logits, noise.code)
        chosen = self._surest(scores, noise.position, count)
        codes = codes.clone()
        codes.view(-1)[chosen] = guesses.view(-1)[chosen]
        return codes

    def _noise(self, codes: Tensor) -> _Noise:
        """Drawn as upstream does, for all places: first for the codes, then for the places."""
        code = position = None
        if self._how.class_temperature > 0:
            code = gumbel(torch.rand(*codes.shape, self._network.config.codes, generator=self._rng))
        if self._how.position_temperature > 0:
            position = gumbel(torch.rand(codes.shape, generator=self._rng))
        return _Noise(code, position)

    def _guess(
        self, places: Tensor, logits: tuple[Tensor, ...], noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The guessed codes and how sure they are, (codebooks, frames). Outside of `places` that is -inf.

        NotFinite if a logit isn't: then its codebook's are all sure by NaN.
        """
        guesses, scores = torch.zeros(places.shape, dtype=torch.long), torch.full(places.shape, -torch.inf)
        for book, there in enumerate(places):
            frames = there.nonzero()[:, 0].to(logits[0].device)
            log_probabilities = self._guided([row[frames, book].float() for row in logits])
            own = None if noise is None else noise[book][there].to(frames.device)
            best, guess = self._choose(log_probabilities, own)
            guesses[book, there], scores[book, there] = guess.cpu(), best.cpu()
        check_finite(scores[places], "the logits of codes")
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

    def logits(self, codes: Sequence[Tensor], check: Callable[[], None]) -> list[tuple[Tensor, ...]]:
        """Of each prompt's guided row, and of its unguided one if there is guidance: (frames, codebooks, codes)."""
        parts = []
        for before, each in zip(self._before, codes, strict=True):
            frames = self._network.frames(each.to(self._device))
            parts += [before, frames, frames] if self._guided else [before, frames]
        rows = self._network(torch.cat(parts), self._packing, self._ends, check).split(self._ends.counts)
        each_item = 1 + self._guided
        return [tuple(rows[first : first + each_item]) for first in range(0, len(rows), each_item)]
