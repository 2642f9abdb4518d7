"""The golden checkpoints as installed models, and what upstream gave for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from mizuoto_runtime.types import Audio
from tests.golden.omnivoice.checkpoint import FOLDER, models, reference_sound, write_checkpoint

GOLDEN: dict[str, Any] = json.loads((FOLDER / "golden.json").read_text(encoding="utf-8"))
TOLERANCE: float = GOLDEN["tolerance"] + GOLDEN["step"]
"""A sample may be rounded to the next of 16-bit steps."""
CASES = range(len(GOLDEN["cases"]))
SINGLE = [number for number in CASES if len(GOLDEN["cases"][number]["frames"]) == 1]


@dataclass(frozen=True)
class Recorded:
    """One item of a recorded case. given: its inputs; prompts: the ids of each chunk's; codes: of each chunk."""

    model: str
    given: dict[str, Any]
    options: dict[str, Any]
    seed: int
    prompts: list[list[int]]
    frames: list[int]
    codes: list[Tensor]
    length: int
    voice: dict[str, Any] | None
    reference: Tensor | None
    wave: Tensor | None

    @property
    def sound(self) -> Audio | None:
        """The reference."""
        if "ref_audio" not in self.given:
            return None
        described = {name: value for name, value in self.given["ref_audio"].items() if name != "rate_hz"}
        return Audio(reference_sound(**described), self.given["ref_audio"]["rate_hz"])


@cache
def _arrays() -> dict[str, Tensor]:
    return load_file(FOLDER / "golden.safetensors")


def recorded(number: int) -> list[Recorded]:
    """The items of the case of that number."""
    case, arrays = GOLDEN["cases"][number], _arrays()
    prompts = iter(case["prompts"])
    items = []

    def of(values: dict[str, Any], item: int) -> dict[str, Any]:
        return {name: value[item] if isinstance(value, list) else value for name, value in values.items()}

    for item, frames in enumerate(case["frames"]):
        reference = arrays.get(f"{number}.{item}.reference")
        items.append(
            Recorded(
                model=case["model"],
                given=of(case["inputs"], item),
                options=case["options"],
                seed=number,
                prompts=[next(prompts) for _ in frames],
                frames=frames,
                codes=[arrays[f"{number}.{item}.codes.{index}"].long() for index in range(len(frames))],
                length=case["lengths"][item],
                voice=case["voices"][item] if case["voices"] else None,
                reference=None if reference is None else reference.long(),
                wave=arrays.get(f"{number}.{item}.wave"),
            )
        )
    return items


def write_models(root: Path) -> Path:
    """Every golden model, below a root of models."""
    for name in models()["models"]:
        write_checkpoint(root / "omnivoice" / name, name)
    return root
