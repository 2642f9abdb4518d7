"""Where a recording is silent: whole numbers as samples, in whole milliseconds.

The arithmetic is that of pydub 0.25.1 (`silence.py`, `audio_segment.py`) and of Python's audioop. A loudness is a root
mean square over all channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FULL_SCALE = 32_768
STEP_MS = 10

_BLOCK_FRAMES = 1 << 20


@dataclass(frozen=True, eq=False)
class Pcm:
    """samples: int16 or int32 (frames, channels), over the whole range of their type."""

    samples: NDArray[np.int16 | np.int32]
    rate_hz: int

    @property
    def full_scale(self) -> int:
        return 1 << (8 * self.samples.itemsize - 1)

    @property
    def length_ms(self) -> int:
        """Rounded, a half to the even one; so it may be half a millisecond too long."""
        return round(1000 * (len(self.samples) / self.rate_hz))

    def frame(self, position_ms: int) -> int:
        """The frame at `position_ms`, which may lie past the last one."""
        return int(min(position_ms, self.length_ms) * (self.rate_hz / 1000.0))

    def part(self, start_ms: int, end_ms: int) -> Pcm:
        """From `start_ms` to `end_ms`; what rounding lacks at the end is silence."""
        start, end = self.frame(start_ms), self.frame(end_ms)
        kept = self.samples[start:end]
        lacking = end - start - len(kept)
        if len(kept) and lacking:
            kept = np.pad(kept, ((0, lacking), (0, 0)))
        return Pcm(kept, self.rate_hz)


def quiet_start_ms(recording: Pcm, threshold_db: float) -> int:
    """How long it is quieter than `threshold_db` at the beginning, looked at STEP_MS by STEP_MS."""
    starts_ms = np.arange(0, recording.length_ms, STEP_MS)
    loud = _loudness(recording, starts_ms, STEP_MS) >= _amplitude(recording, threshold_db)
    return int(starts_ms[loud.argmax()]) if loud.any() else recording.length_ms


def loud_parts(recording: Pcm, *, least_ms: int, threshold_db: float, kept_ms: int) -> Iterator[Pcm]:
    """The parts between silences of `least_ms` and more.

    So much as `kept_ms` of a silence stays on each side of a cut, or half of a shorter one.
    """
    kept = [[start - kept_ms, end + kept_ms] for start, end in _loud_ranges(recording, least_ms, threshold_db)]
    for before, after in itertools.pairwise(kept):
        if after[0] < before[1]:
            before[1] = after[0] = (before[1] + after[0]) // 2
    for start, end in kept:
        yield recording.part(max(start, 0), end)


def _loud_ranges(recording: Pcm, least_ms: int, threshold_db: float) -> list[tuple[int, int]]:
    length_ms = recording.length_ms
    silent = _silent_ranges(recording, least_ms, threshold_db)
    if silent and silent[0] == (0, length_ms):
        return []
    ends = [0, *(end for _, end in silent)]
    starts = [*(start for start, _ in silent), length_ms]
    ranges = list(zip(ends, starts, strict=True))
    if silent and silent[-1][1] == length_ms:
        ranges.pop()
    return ranges[1:] if ranges[0] == (0, 0) and silent else ranges


def _silent_ranges(recording: Pcm, least_ms: int, threshold_db: float) -> list[tuple[int, int]]:
    """(start, end) in milliseconds of silences of at least `least_ms`, looked for every STEP_MS and at the end."""
    last_ms = recording.length_ms - least_ms
    if last_ms < 0:
        return []
    starts_ms = np.arange(0, last_ms + 1, STEP_MS)
    if last_ms % STEP_MS:
        starts_ms = np.append(starts_ms, last_ms)
    silent_ms = starts_ms[_loudness(recording, starts_ms, least_ms) <= _amplitude(recording, threshold_db)]
    if not len(silent_ms):
        return []
    gaps = np.diff(silent_ms)
    breaks = np.flatnonzero((gaps != STEP_MS) & (gaps > least_ms)) + 1
    return [(int(run[0]), int(run[-1]) + least_ms) for run in np.split(silent_ms, breaks)]


def _amplitude(recording: Pcm, level_db: float) -> float:
    return float(10.0 ** (level_db / 20.0) * recording.full_scale)


def _loudness(recording: Pcm, starts_ms: NDArray[np.int64], length_ms: int) -> NDArray[np.int64]:
    """The root mean square of each window of `length_ms`, rounded down; 0 for one that lies past the last frame."""
    per_ms = recording.rate_hz / 1000.0
    ends_ms = np.minimum(starts_ms + length_ms, recording.length_ms)
    starts, ends = (starts_ms * per_ms).astype(np.int64), (ends_ms * per_ms).astype(np.int64)
    energy = _energy_before(recording.samples, ends) - _energy_before(recording.samples, starts)
    counts = np.maximum(1, (ends - starts) * recording.samples.shape[1])
    loudness: NDArray[np.int64] = np.sqrt(energy / counts).astype(np.int64)
    return loudness


def _energy_before(samples: NDArray[np.int16 | np.int32], positions: NDArray[np.int64]) -> NDArray[np.number]:
    """For each of the rising `positions`: the sum of the squares of all frames before it, exact for int16."""
    dtype = np.int64 if samples.dtype == np.int16 else np.float64
    energy = np.zeros(len(positions), dtype=dtype)
    total = dtype(0)
    for start in range(0, len(samples), _BLOCK_FRAMES):
        block = samples[start : start + _BLOCK_FRAMES].astype(dtype)
        running = np.concatenate(([dtype(0)], np.square(block).sum(axis=1).cumsum())) + total
        first, last = np.searchsorted(positions, (start, start + _BLOCK_FRAMES))
        energy[first:last] = running[np.minimum(positions[first:last] - start, len(block))]
        total = running[-1]
        energy[last:] = total
    return energy
