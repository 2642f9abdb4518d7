"""Times of several ways to do the same, taken in turns, so that a busy machine slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

QUIET_SHARE = 0.1


def take_turns(
    ways: Mapping[str, Callable[[], object]], rounds: int, repeats: int = 1, *, warm_up: int = 2
) -> dict[str, list[float]]:
    """Seconds of one call of each way, one value a round; each round calls every way `repeats` times in a row."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(-warm_up, rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            way = ways[name]
            began = time.perf_counter()
            for _ in range(repeats):
                way()
            if number >= 0:
                seconds[name].append((time.perf_counter() - began) / repeats)
    return seconds


def quiet(values: list[float]) -> float:
    """What a tenth of the rounds stay below: of short calls, the time without what else the machine does."""
    return sorted(values)[int(QUIET_SHARE * len(values))]


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: otherwise short calls wait for a second core that may be busy elsewhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def median(values: list[float]) -> float:
    return statistics.median(values)


def median_of(seconds: Mapping[str, list[float]], figure: Callable[[dict[str, float]], float]) -> float:
    """The median over the rounds of `figure`, which gets each way's seconds in one round."""
    rounds = zip(*seconds.values(), strict=True)
    return statistics.median(figure(dict(zip(seconds, each, strict=True))) for each in rounds)


def lap(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
