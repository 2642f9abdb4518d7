"""The waves of a text's chunks, one fading into the next.

The arithmetic is that of f5-tts 1.1.22 (`infer_batch_process` in `f5_tts/infer/utils_infer.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def cross_fade(waves: Sequence[Tensor], seconds: float, rate_hz: int) -> Tensor:
    """waves: float32 (length) each, on the CPU, in order → float32 (length). ValueError if there are none.

    Two that meet overlap by `seconds`, or by the shorter of them; both slopes are straight lines. Computed in float64
    and rounded once, as upstream's result is float64. A single wave is returned itself.
    """
    if not waves:
        raise ValueError("there are no waves to join")
    if len(waves) == 1:
        return waves[0]
    joined = np.empty(sum(len(wave) for wave in waves), dtype=np.float64)
    end = 0
    for wave in waves:
        overlap = max(0, min(int(seconds * rate_hz), end, len(wave)))
        samples = wave.numpy().astype(np.float64)
        fading = joined[end - overlap : end]
        fading *= np.linspace(1, 0, overlap)
        fading += samples[:overlap] * np.linspace(0, 1, overlap)
        joined[end : end + len(samples) - overlap] = samples[overlap:]
        end += len(samples) - overlap
    return torch.from_numpy(joined[:end].astype(np.float32))
