"""Choosing the next token from logits, as Hugging Face's generation does it, with random numbers made on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is chosen. sample: whether at all by chance, else the likeliest; top_k 0 and top_p 1: no limit."""

    sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0

    def choose(self, logits: Tensor, noise: Tensor | None) -> Tensor:
        """(rows, tokens) float32 logits → (rows) tokens. noise: what `exponential_noise` gave, if by chance."""
        if not self.sample:
            return logits.argmax(dim=-1)
        assert noise is not None
        if self.temperature != 1.0:
            logits = logits / self.temperature
        if self.top_k:
            logits = top_k_only(logits, self.top_k)
        if self.top_p < 1.0:
            logits = top_p_only(logits, self.top_p)
        return logits.softmax(dim=-1).div_(noise).argmax(dim=-1)


def top_k_only(logits: Tensor, top_k: int) -> Tensor:
    """The `top_k` largest of each row, and what equals the least of them; the others are -inf."""
    least = logits.topk(min(top_k, logits.shape[-1]))[0][..., -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def top_p_only(logits: Tensor, top_p: float) -> Tensor:
    """The largest of each row whose probabilities reach `top_p` together, at least one; the others are -inf."""
    ascending, order = logits.sort(descending=False)
    removed = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
    removed[..., -1:] = False
    return logits.masked_fill(removed.scatter(-1, order, removed), -torch.inf)


def exponential_noise(out: Tensor, rng: Generator) -> Tensor:
    """Fill (rows, tokens) float32 `out` on the CPU with what one draw of `torch.multinomial` from such rows takes.

    The token with the largest probability divided by its noise is the one that multinomial would draw.
    """
    return out.exponential_(1.0, generator=rng)


def penalise_repeats(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that were seen less likely (Keskar et al., https://arxiv.org/abs/1909.05858).

    seen: booleans of the logits' shape.
    """
    if penalty == 1.0:
        return logits
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)
