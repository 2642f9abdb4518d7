"""What is kept of a recording, by where it is silent: samples of 16 or 32 bits, in whole milliseconds.

The arithmetic is that of pydub 0.25.1 (`silence.py`, `audio_segment.py`) and of Python's audioop, with the settings
of `preprocess_ref_audio_text` in f5-tts 1.1.22.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ...audio.silence import Pcm, loud_parts, quiet_start_ms

LOWEST_RATE_HZ = 11_025
"""pydub makes silence at this rate; what is joined with it comes up to it."""
TAIL_MS = 50
EDGE_DB = -42.0
KEPT_MS = 1_000
"""So much of a silence stays on each side of a cut, or half of a shorter one."""
ENOUGH_MS, LONGEST_MS = 6_000, 12_000


def to_pcm(samples: NDArray[np.float32], rate_hz: int) -> Pcm:
    """samples: (channels, frames), full scale 1; beyond it they are clipped.

    Samples that came from 24 bits become 32 of them as pydub widens them: with ones behind a negative number. Others as
    libsndfile writes them to a 16-bit file: rounded to 32 bits, of which the upper 16 stay; those that came from 16
    bits are the same again.
    """
    wide = np.clip(np.rint(samples.T.astype(np.float64) * 2.0**31), -(2.0**31), 2.0**31 - 1).astype(np.int64)
    if (wide & 0xFFFF).any() and not (wide & 0xFF).any():
        return Pcm((wide | np.where(wide < 0, 0xFF, 0)).astype(np.int32), rate_hz)
    return Pcm((wide >> 16).astype(np.int16), rate_hz)


def prepared(recording: Pcm) -> tuple[Pcm, bool]:
    """What is kept of `recording`, with TAIL_MS of silence at its end, and whether that is all of its sound.

    Long silences are shortened, and those at the edges go; of what is longer than LONGEST_MS then the beginning is
    taken, cut at a silence if there is one. Of a rate below LOWEST_RATE_HZ the result has that rate.
    """
    kept, whole = _joined(loud_parts(recording, least_ms=1000, threshold_db=-50.0, kept_ms=KEPT_MS), recording)
    if kept.length_ms > LONGEST_MS:
        kept, whole = _joined(loud_parts(recording, least_ms=100, threshold_db=-40.0, kept_ms=KEPT_MS), recording)
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
    recording = recording.part(quiet_start_ms(recording, EDGE_DB), recording.length_ms)
    quiet_ms = quiet_start_ms(Pcm(recording.samples[::-1], recording.rate_hz), EDGE_DB)
    return recording.part(0, recording.length_ms - quiet_ms) if quiet_ms else recording


def _converted_frames(frames: int, rate_hz: int, target_hz: int) -> int:
    return (frames - 1) * target_hz // rate_hz + 1 if frames else 0


def _at_rate(recording: Pcm, target_hz: int) -> NDArray[np.int16 | np.int32]:
    """The samples at a rate that isn't lower, as audioop's `ratecv` interpolates them: linearly, in 32 bits."""
    if recording.rate_hz == target_hz or not len(recording.samples):
        return recording.samples
    divisor = math.gcd(recording.rate_hz, target_hz)
    step, per_frame = recording.rate_hz // divisor, target_hz // divisor
    positions = np.arange(_converted_frames(len(recording.samples), step, per_frame), dtype=np.int64) * step
    later = -(-positions // per_frame)
    back = (later * per_frame - positions)[:, None].astype(np.float64)
    samples = recording.samples
    scale = (1 << 31) // recording.full_scale
    wide = samples.astype(np.float64) * scale
    mixed = (wide[np.maximum(later - 1, 0)] * back + wide[later] * (per_frame - back)) / per_frame
    return (np.trunc(mixed).astype(np.int64) // scale).astype(samples.dtype)
