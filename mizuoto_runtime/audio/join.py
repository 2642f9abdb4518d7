"""Pieces of sound, joined without clicks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor

SLAB_BYTES = 40 << 20
"""Above the largest size (32 MiB) that C libraries keep for themselves when it is freed."""


def join(
    pieces: Iterable[Tensor], rate_hz: int, *, silence_seconds: float = 0.0, fade_seconds: float = 0.004
) -> Tensor:
    """Join `pieces`, each (channels, length) float32 on the CPU, with silence between them.

    The edges that meet are faded over `fade_seconds`, a raised cosine; the outer edges of the first and the last piece
    stay as they are. A single piece is returned itself. See `Joiner`.
    """
    joiner = Joiner(rate_hz, silence_seconds=silence_seconds, fade_seconds=fade_seconds)
    for piece in pieces:
        joiner.add(piece)
    return joiner.finish()


class Joiner:
    """Joins pieces that come one after another, as `join` does. Pieces are never changed.

    Memory: the result and SLAB_BYTES more, besides the latest piece. Pieces of length 0 count as absent.
    """

    def __init__(self, rate_hz: int, *, silence_seconds: float = 0.0, fade_seconds: float = 0.004) -> None:
        self._silence = round(silence_seconds * rate_hz)
        self._fade = round(fade_seconds * rate_hz)
        self._latest: Tensor | None = None
        self._store: _Slabs | None = None

    def add(self, piece: Tensor) -> None:
        """Append `piece`, (channels, length) float32 on the CPU. ValueError if it isn't that."""
        if piece.ndim != 2 or piece.dtype != torch.float32 or piece.device.type != "cpu":
            raise ValueError(f"a piece is {tuple(piece.shape)} {piece.dtype} on {piece.device}; 2-D float32 is wanted")
        if self._latest is None or not self._latest.shape[1]:
            self._latest = piece
            return
        if piece.shape[0] != self._latest.shape[0]:
            raise ValueError(f"a piece has {piece.shape[0]} channels, the ones before {self._latest.shape[0]}")
        if piece.shape[1]:
            self._write(self._latest, last=False)
            self._latest = piece

    def finish(self) -> Tensor:
        """The joined sound, (channels, length) float32. ValueError if no piece came."""
        if self._latest is None:
            raise ValueError("there are no pieces to join")
        if self._store is None:
            return self._latest
        self._write(self._latest, last=True)
        self._latest = None
        return self._store.collect()

    def _write(self, piece: Tensor, *, last: bool) -> None:
        first = self._store is None
        store = self._store = self._store or _Slabs(piece.shape[0])
        length = piece.shape[1]
        fade = min(self._fade, length // 2)
        fade_in, fade_out = (0 if first else fade), (0 if last else fade)
        store.write(piece[:, :fade_in] * _ramp(fade_in))
        store.write(piece[:, fade_in : length - fade_out])
        store.write(piece[:, length - fade_out :] * _ramp(fade_out).flip(0))
        if not last:
            store.write(piece.new_zeros(()).expand(piece.shape[0], self._silence))


class _Slabs:
    """Sound of a length not known beforehand, kept in slabs that go back to the system one by one at the end."""

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._slab_length = SLAB_BYTES // (4 * channels)
        self._slabs: deque[Tensor] = deque()
        self._length = 0

    def write(self, samples: Tensor) -> None:
        position = 0
        while position < samples.shape[1]:
            start = self._length % self._slab_length
            if not start:
                self._slabs.append(torch.empty(self._channels, self._slab_length))
            part = samples[:, position : position + self._slab_length - start]
            self._slabs[-1][:, start : start + part.shape[1]] = part
            self._length += part.shape[1]
            position += part.shape[1]

    def collect(self) -> Tensor:
        sound = torch.empty(self._channels, self._length)
        for start in range(0, self._length, self._slab_length):
            target = sound[:, start : start + self._slab_length]
            target.copy_(self._slabs.popleft()[:, : target.shape[1]])
        return sound


def _ramp(length: int) -> Tensor:
    """(length,) from nearly 0 to nearly 1."""
    return torch.sin((torch.arange(length) + 0.5) * (math.pi / 2 / max(1, length))).square()
