"""Devices by name."""

from __future__ import annotations

from ..errors import InputError


def checked_device(name: str) -> str:
    """The device as torch names it, with its index ("cuda" → "cuda:0"); "" is the CPU. InputError if it isn't there."""
    if name in ("", "cpu"):
        return "cpu"
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} isn't one that torch knows; known here: {', '.join(_present())}") from error
    indexed = f"{device.type}:{device.index or 0}"
    if indexed not in _present():
        raise InputError(f"device {name!r} isn't on this machine; present: {', '.join(_present())}")
    return indexed


def _present() -> tuple[str, ...]:
    import torch

    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    found += [f"xpu:{index}" for index in range(torch.xpu.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps:0")
    return ("cpu", *found)
