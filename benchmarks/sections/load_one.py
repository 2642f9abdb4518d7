"""Loads one model and prints, as JSON, how much RAM that took at most: `lm PATH LAYERS` or `piper PATH`. Linux only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from mizuoto_runtime.engines.piper.weights import load_voice
from mizuoto_runtime.memory.handle import ModelHandle

from ..models import DecoderLm
from ..rig import Rig, component

MARGIN_BYTES = 1 << 20


def load_lm(path: Path, layers: int) -> list[nn.Module]:
    """As the engines load: an empty model, and the mapped file's tensors assigned to it, in their own dtype."""
    with torch.device("meta"):
        model = DecoderLm(layers)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    model.load_state_dict(tensors, strict=True, assign=True)
    return [model.eval().requires_grad_(False)]


def load_piper(path: Path) -> list[nn.Module]:
    voice = load_voice(path)
    return [voice.encoder, voice.decoder]


def resident_bytes(field: str) -> int:
    """VmRSS: RAM of this process now, mapped files included; VmHWM: its peak since `reset_peak`."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise KeyError(field)


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def touch(modules: list[nn.Module]) -> None:
    """Read every weight, as the first run does; mapped files are read from disk only then."""
    for module in modules:
        for tensor in module.state_dict().values():
            tensor.flatten().view(torch.uint8).count_nonzero()


def warm_up() -> None:
    """Bring what torch imports when it is first used, which isn't the model's."""
    with torch.device("meta"):
        DecoderLm(1)
    touch([nn.Linear(1024, 1024)])


def measured(load: Callable[[], list[nn.Module]]) -> dict[str, object]:
    """Bytes of the weights; most RAM beyond what was there before, until loaded, all streamed, and whole.

    anonymous: how much of it at that time wasn't mapped from the file.
    """
    warm_up()
    before, anonymous_before = resident_bytes("VmRSS"), resident_bytes("RssAnon")
    reset_peak()
    modules = load()
    touch(modules)
    peaks = [resident_bytes("VmHWM") - before]
    anonymous = [resident_bytes("RssAnon") - anonymous_before]
    handles = [component(module, name=str(number)) for number, module in enumerate(modules)]
    size_bytes = sum(handle.size_bytes for handle in handles)
    for mode in ("none", "normal"):
        enter(Rig(size_bytes + MARGIN_BYTES, mode=mode), handles)
        peaks.append(resident_bytes("VmHWM") - before)
        anonymous.append(resident_bytes("RssAnon") - anonymous_before)
    return {"size_bytes": size_bytes, "peaks": peaks, "anonymous": anonymous}


def enter(rig: Rig, handles: list[ModelHandle]) -> None:
    with rig.context().use(handles, 0):
        pass


def main() -> None:
    what, path = sys.argv[1], Path(sys.argv[2])
    load = {"lm": lambda: load_lm(path, int(sys.argv[3])), "piper": lambda: load_piper(path)}[what]
    print(json.dumps(measured(load)))


if __name__ == "__main__":
    main()
