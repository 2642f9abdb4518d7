"""A benchmark's figures: what was measured, in which unit, and what it should be at most or at least."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured value. budget_bytes, peak_bytes: of the device while it was measured, where it matters."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    budget_bytes: int | None = None
    peak_bytes: int | None = None
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether the value isn't what it should be."""
        above = self.at_most is not None and self.value > self.at_most
        return above or (self.at_least is not None and self.value < self.at_least)


def line(figure: Figure) -> str:
    """One row of the table."""
    target = ""
    if figure.at_most is not None:
        target = f"<= {figure.at_most:g}"
    elif figure.at_least is not None:
        target = f">= {figure.at_least:g}"
    verdict = "MISSED" if figure.missed else ("ok" if target else "")
    memory = [
        f"{what} {size_bytes / 1e6:,.1f} MB"
        for what, size_bytes in (("budget", figure.budget_bytes), ("peak", figure.peak_bytes))
        if size_bytes is not None
    ]
    remarks = "; ".join(filter(None, [", ".join(memory), figure.note]))
    return f"  {figure.name:68} {figure.value:12,.3f} {figure.unit:5} {target:9} {verdict:6} {remarks}".rstrip()


def machine(device: str) -> dict[str, str]:
    """What the figures were measured on; `device` in words."""
    return {
        "device": device,
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "cores": str(os.cpu_count()),
    }


def save(path: Path, about: dict[str, str], figures: dict[str, Sequence[Figure]], failed: dict[str, str]) -> None:
    """Write everything as JSON. failed: error by section."""
    sections: dict[str, Any] = {
        section: [{**asdict(figure), "missed": figure.missed} for figure in found] for section, found in figures.items()
    }
    content = {"machine": about, "sections": sections, "failed": failed}
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
