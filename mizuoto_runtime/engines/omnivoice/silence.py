"""Takes silence out of speech, as `remove_silence` in omnivoice 0.2.1 (`utils/audio.py`) does it with pydub."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...audio.silence import FULL_SCALE, Pcm, loud_parts, quiet_start_ms

SILENT_DB = -50.0


def remove_silence(
    samples: NDArray[np.float32], rate_hz: int, *, middle_ms: int, lead_ms: int, trail_ms: int
) -> NDArray[np.float32]:
    """samples: (length), full scale 1. Of silences longer than `middle_ms` so much stays, or up to twice as much.

    At the beginning `lead_ms` of silence stays, at the end `trail_ms`. The result is that of 16-bit samples, truncated
    and clipped, even where nothing is cut; it is empty if all is quieter than SILENT_DB.
    """
    recording = to_pcm(samples, rate_hz)
    parts = list(loud_parts(recording, least_ms=middle_ms, threshold_db=SILENT_DB, kept_ms=middle_ms))
    kept = Pcm(np.concatenate([part.samples for part in parts] or [recording.samples[:0]]), rate_hz)
    kept = _without_start(_reversed(_without_start(kept, lead_ms)), trail_ms)
    wave: NDArray[np.float32] = _reversed(kept).samples[:, 0].astype(np.float32) / np.float32(FULL_SCALE)
    return wave


def to_pcm(samples: NDArray[np.float32], rate_hz: int) -> Pcm:
    """samples: (length), full scale 1. Truncated to 16 bits, and clipped."""
    scaled = samples * np.float32(FULL_SCALE)
    whole = np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    return Pcm(whole[:, None], rate_hz)


def _without_start(recording: Pcm, kept_ms: int) -> Pcm:
    """Without the silence that it begins with, but for `kept_ms`; in whole milliseconds."""
    start_ms = max(0, quiet_start_ms(recording, SILENT_DB) - kept_ms)
    return recording.part(start_ms, recording.length_ms)


def _reversed(recording: Pcm) -> Pcm:
    return Pcm(recording.samples[::-1], recording.rate_hz)
