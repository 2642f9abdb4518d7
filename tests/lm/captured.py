"""Plays CUDA graphs on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mizuoto_runtime.memory.handle import ModelHandle


class FakeCapturer:
    """A replay computes again, from the tensors it was captured with, and writes where its results lay then.

    A card would do that on its own, so what it counts in the books of `handle` is taken back. before: called before
    each capture, to fail it. captures, replays: how many there were.
    """

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        self.handle: ModelHandle | None = None
        self.captures = 0
        self.replays = 0

    def capture(self, fn: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        self._before()
        result = fn()
        self.captures += 1
        for tensor in tensors(result):
            tensor.zero_()  # a capture only records

        def replay() -> None:
            self.replays += 1
            counted = self.handle.passed if self.handle is not None else None
            for old, new in zip(tensors(result), tensors(fn()), strict=True):
                old.copy_(new)
            if self.handle is not None and counted is not None:
                self.handle.uncount(self.handle.passed - counted)

        return replay, result


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)
