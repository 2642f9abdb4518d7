"""What upstream made of the front end's cases, and those cases as the runtime takes them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mizuoto_runtime.engines.f5tts.reference import Reference, prepare_reference
from tests.golden.f5tts import text_cases
from tests.golden.f5tts.sounds import noise, recording, widened

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "f5tts" / "text.json").read_text(encoding="utf-8")
)
TOLERANCE: float = GOLDEN["tolerance"]


def sound(number: int) -> tuple[Tensor, int]:
    """The recording of that number, float32 (channels, length), and its rate."""
    case = text_cases.RECORDINGS[number]
    samples = recording(case["stretches"], case["rate_hz"], case.get("channels", 1), number)
    wide = widened(samples, number) if "bits" in case else samples
    full_scale = 1 << (case.get("bits", 16) - 1)
    return torch.from_numpy(np.ascontiguousarray(wide.T)).float() / full_scale, case["rate_hz"]


@cache
def reference(number: int) -> Reference:
    return prepare_reference(*sound(number))


def shown(samples: Tensor) -> Tensor:
    """The samples of which the recorder kept the values."""
    count = len(GOLDEN["recordings"][0]["samples"])
    return samples[np.linspace(0, len(samples) - 1, count).astype(int)]


def spoken(mel_frames: int) -> Tensor:
    """What the recorder's vocoder gives for so many frames."""
    samples = torch.from_numpy(noise(np.arange((mel_frames - 1) * 256), mel_frames)).float() / 65_536
    samples[:1] = text_cases.LEVEL
    return samples
