"""The resident memory that loading a model takes at the peak: in a process of its own, on Linux."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

MB = 1_000_000


def report_peaks(file: Path, load: Callable[[], nn.Module]) -> None:
    """Print how much memory `load` of a `file` takes at most, and reading all weights after it."""
    before = status_bytes("VmRSS")
    module = load()
    loaded = status_bytes("VmHWM")
    for parameter in module.parameters():
        parameter.view(torch.int16).max()
    size = file.stat().st_size
    for what, peak in (("loaded", loaded), ("all weights read", status_bytes("VmHWM"))):
        rise = peak - before
        print(f"  {what}: {rise / MB:.0f} MB more at the peak, {rise / size:.3f} of the file's {size / MB:.0f} MB")


def status_bytes(field: str) -> int:
    """Of this process: VmRSS, what is resident now, mapped files included; VmHWM, the most that was."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10
