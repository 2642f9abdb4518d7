"""How many mel frames a chunk of text gets: by how fast the reference is spoken, or as long as one asks.

The arithmetic is that of f5-tts 1.1.22 (`infer_batch_process` in `f5_tts/infer/utils_infer.py`, `CFM.sample` in
`f5_tts/model/cfm.py`). Frames count from the reference's beginning; lengths of texts are bytes of UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence

from .reference import HOP, RATE_HZ

SHORT_TEXT_BYTES = 10
SHORT_TEXT_SPEED = 0.3
"""A shorter text is spoken at this speed, whatever speed is asked for."""
MOST_FRAMES = 65_536


def chunk_frames(reference_frames: int, reference_text: str, text: str, speed: float) -> int:
    """Frames of the reference and `text` together.

    reference_text: as it stands before the text, see `text.space_reference_text`.
    """
    reference_bytes, text_bytes = _size(reference_text), _size(text)
    if text_bytes < SHORT_TEXT_BYTES:
        speed = SHORT_TEXT_SPEED
    return reference_frames + int(reference_frames / reference_bytes * text_bytes / speed)


def fixed_frames(seconds: float) -> int:
    """Frames of a length that is asked for, the reference included."""
    return int(seconds * RATE_HZ / HOP)


def share_seconds(
    seconds: float, reference_frames: int, chunks: Sequence[str], cross_fade_seconds: float
) -> list[float]:
    """What each chunk gets of a length that is asked for; each time the reference is included.

    Several chunks share what the reference leaves, and what their cross-fades take, by their bytes.
    """
    if len(chunks) == 1:
        return [seconds]
    reference_seconds = reference_frames * HOP / RATE_HZ
    sizes = [_size(chunk) for chunk in chunks]
    shared = seconds - reference_seconds + cross_fade_seconds * (len(chunks) - 1)
    total = sum(sizes)
    return [reference_seconds + shared * size / total for size in sizes]


def plan_frames(
    chunks: Sequence[str],
    reference_frames: int,
    reference_text: str,
    *,
    speed: float,
    fix_duration: float | None,
    cross_fade_seconds: float,
) -> list[int]:
    """Frames of the reference and each chunk together, before `sampled_frames`.

    fix_duration: seconds of all speech, the reference included; None: by `speed`.
    """
    if fix_duration is None:
        return [chunk_frames(reference_frames, reference_text, chunk, speed) for chunk in chunks]
    return [fixed_frames(share) for share in share_seconds(fix_duration, reference_frames, chunks, cross_fade_seconds)]


def sampled_frames(frames: int, tokens: int, condition_frames: int) -> int:
    """The frames that are really sampled: at least one more than there are tokens, and than the condition has."""
    return min(max(tokens + 1, condition_frames + 1, frames), MOST_FRAMES)


def _size(text: str) -> int:
    return len(text.encode("utf-8"))
