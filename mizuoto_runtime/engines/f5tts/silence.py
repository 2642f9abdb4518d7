"""Where a recording is silent, and what of it is kept: 16-bit samples, in whole milliseconds.

The arithmetic is that of pydub 0.25.1 (`silence.py`, `audio_segment.py`) and of Python's audioop, with the settings
of `preprocess_ref_audio_text` in f5-tts 1.1.22. A loudness is a root mean square over all channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FULL_SCALE = 32_768
STEP_MS = 10
LOWEST_RATE_HZ = 11_025
"""pydub makes silence at this rate; what is joined with it comes up to it."""
TAIL_MS = 50
EDGE_DB = -42.0
KEPT_MS = 1_000
"""So much of a silence stays on each side of a cut, or half of a shorter one."""
ENOUGH_MS, LONGEST_MS = 6_000, 12_000

_BLOCK_FRAMES = 1 << 20


@dataclass(frozen=True, eq=False)
class Pcm:
    """samples: int16 (frames, channels)."""

    samples: NDArray[np.int16]
    rate_hz: int

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


def to_pcm(samples: NDArray[np.float32], rate_hz: int) -> Pcm:
    """samples: (channels, frames), full scale 1; beyond it they are clipped.

    As libsndfile writes them to a 16-bit file: rounded to 32 bits, of which the upper 16 stay. Samples that came from
    16 bits are those again.
    """
    wide = np.clip(np.rint(samples.T.astype(np.float64) * 2.0**31), -(2.0**31), 2.0**31 - 1)
    return Pcm((wide.astype(np.int64) >> 16).astype(np.int16), rate_hz)


def prepared(recording: Pcm) -> tuple[Pcm, bool]:
    """What is kept of `recording`, with TAIL_MS of silence at its end, and whether that is all of its sound.

    Long silences are shortened, and those at the edges go; of what is longer than LONGEST_MS then the beginning is
    taken, cut at a silence if there is one. Of a rate below LOWEST_RATE_HZ the result has that rate.
    """
    kept, whole = _joined(_loud_parts(recording, least_ms=1000, threshold_db=-50.0), recording)
    if kept.length_ms > LONGEST_MS:
        kept, whole = _joined(_loud_parts(recording, least_ms=100, threshold_db=-40.0), recording)
    if kept.length_ms > LONGEST_MS:
        kept, whole = kept.part(0, LONGEST_MS), False
    kept = _without_edges(kept)
    return Pcm(np.pad(kept.samples, ((0, tail_frames(kept.rate_hz)), (0, 0))), kept.rate_hz), whole


def tail_frames(rate_hz: int) -> int:
    """How many frames `prepared` appends, at the rate of its result."""
    made = int(LOWEST_RATE_HZ * (TAIL_MS / 1000.0))
    return _converted_frames(made, LOWEST_RATE_HZ, rate_hz)


def _joined(parts: Iterable[Pcm], recording: Pcm) -> tuple[Pcm, bool]:
    """Parts one after another, up to the one that would take them past LONGEST_MS when there is enough.

    And whether those are all.
    """
    rate_hz = max(recording.rate_hz, LOWEST_RATE_HZ)
    kept = [recording.samples[:0]]
    frames, whole = 0, True
    for part in parts:
        samples = _at_rate(part, rate_hz)
        longer = frames + len(samples)
        if _length_ms(frames, rate_hz) > ENOUGH_MS and _length_ms(longer, rate_hz) > LONGEST_MS:
            whole = False
            break
        kept.append(samples)
        frames = longer
    return Pcm(np.concatenate(kept), rate_hz), whole


def _length_ms(frames: int, rate_hz: int) -> int:
    return round(1000 * (frames / rate_hz))


def _without_edges(recording: Pcm) -> Pcm:
    recording = recording.part(_quiet_start_ms(recording), recording.length_ms)
    quiet_ms = _quiet_start_ms(Pcm(recording.samples[::-1], recording.rate_hz))
    return recording.part(0, recording.length_ms - quiet_ms) if quiet_ms else recording


def _quiet_start_ms(recording: Pcm) -> int:
    starts_ms = np.arange(0, recording.length_ms, STEP_MS)
    loud = _loudness(recording, starts_ms, STEP_MS) >= _amplitude(EDGE_DB)
    return int(starts_ms[loud.argmax()]) if loud.any() else recording.length_ms


def _loud_parts(recording: Pcm, *, least_ms: int, threshold_db: float) -> Iterator[Pcm]:
    """The parts between silences of `least_ms` and more, with KEPT_MS of silence on each side."""
    kept = [[start - KEPT_MS, end + KEPT_MS] for start, end in _loud_ranges(recording, least_ms, threshold_db)]
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
    silent_ms = starts_ms[_loudness(recording, starts_ms, least_ms) <= _amplitude(threshold_db)]
    if not len(silent_ms):
        return []
    gaps = np.diff(silent_ms)
    breaks = np.flatnonzero((gaps != STEP_MS) & (gaps > least_ms)) + 1
    return [(int(run[0]), int(run[-1]) + least_ms) for run in np.split(silent_ms, breaks)]


def _amplitude(level_db: float) -> float:
    return float(10.0 ** (level_db / 20.0) * FULL_SCALE)


def _loudness(recording: Pcm, starts_ms: NDArray[np.int64], length_ms: int) -> NDArray[np.int64]:
    """The root mean square of each window of `length_ms`, rounded down; 0 for one that lies past the last frame."""
    per_ms = recording.rate_hz / 1000.0
    ends_ms = np.minimum(starts_ms + length_ms, recording.length_ms)
    starts, ends = (starts_ms * per_ms).astype(np.int64), (ends_ms * per_ms).astype(np.int64)
    energy = _energy_before(recording.samples, ends) - _energy_before(recording.samples, starts)
    counts = np.maximum(1, (ends - starts) * recording.samples.shape[1])
    loudness: NDArray[np.int64] = np.sqrt(energy / counts).astype(np.int64)
    return loudness


def _energy_before(samples: NDArray[np.int16], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each of the rising `positions`: the sum of the squares of all frames before it."""
    energy = np.zeros(len(positions), dtype=np.int64)
    total = 0
    for start in range(0, len(samples), _BLOCK_FRAMES):
        block = samples[start : start + _BLOCK_FRAMES].astype(np.int64)
        running = np.concatenate(([0], np.square(block).sum(axis=1).cumsum())) + total
        first, last = np.searchsorted(positions, (start, start + _BLOCK_FRAMES))
        energy[first:last] = running[np.minimum(positions[first:last] - start, len(block))]
        total = int(running[-1])
        energy[last:] = total
    return energy


def _converted_frames(frames: int, rate_hz: int, target_hz: int) -> int:
    return (frames - 1) * target_hz // rate_hz + 1 if frames else 0


def _at_rate(recording: Pcm, target_hz: int) -> NDArray[np.int16]:
    """The samples at a rate that isn't lower, as audioop's `ratecv` interpolates them: linearly, in 32 bits."""
    if recording.rate_hz == target_hz or not len(recording.samples):
        return recording.samples
    divisor = math.gcd(recording.rate_hz, target_hz)
    step, per_frame = recording.rate_hz // divisor, target_hz // divisor
    positions = np.arange(_converted_frames(len(recording.samples), step, per_frame), dtype=np.int64) * step
    later = -(-positions // per_frame)
    back = (later * per_frame - positions)[:, None].astype(np.float64)
    wide = recording.samples.astype(np.float64) * 65_536
    mixed = (wide[np.maximum(later - 1, 0)] * back + wide[later] * (per_frame - back)) / per_frame
    return (np.trunc(mixed).astype(np.int64) >> 16).astype(np.int16)
