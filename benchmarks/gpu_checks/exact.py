"""None, half and all of the weights on the device give the same outputs there (M2)."""

from __future__ import annotations

import importlib.util
import json
import lzma
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from tests.memory.modules import WIDTH, kinds

from ..figures import Figure
from ..models import randomised
from ..rig import component, room
from .place import MB, SIMULATED_BYTES, Place

SHARES = {"none": 0.0, "halfway": 0.5, "whole": 1.0}
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "piper"
VOICES = ("x_low", "medium", "high")


def modules(place: Place) -> Iterator[Figure]:
    """Each kind of module that offloaders get wrong."""
    different, peaks, count = [], [], 0
    for name, make in kinds():
        outputs = {}
        for share_name, share in SHARES.items():
            output, peak = module_output(place, make, share, inferred=name == "inference tensors")
            outputs[share_name] = output
            peaks.append(peak)
        count += 1
        if not all(torch.equal(each, outputs["whole"]) for each in outputs.values()):
            worst = max(float((each - outputs["whole"]).abs().max()) for each in outputs.values())
            different.append(f"{name} by {worst:.1e}")
    yield Figure(
        name="kinds of modules whose outputs differ between none, halfway, whole", value=len(different), unit="",
        at_most=0, note=", ".join(different) or f"{count} kinds are equal",
    )  # fmt: skip
    yield Figure(name="bytes held / budget at most, over all kinds", value=max(peaks), unit="x", at_most=1.0)


def module_output(
    place: Place, make: Callable[[], nn.Module], share: float, *, inferred: bool
) -> tuple[Tensor, float]:
    """The output of the second of two runs, and the handle's bytes over the budget."""
    module = make().eval() if inferred else randomised(make())
    handle = component(module, "oneshot") if not inferred else _inferred(module)
    budget_bytes = budget([handle], share)
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(2)).to(place.name)
    rig = place.rig(budget_bytes)
    with torch.no_grad(), rig.context().use([handle], 0):
        if handle.whole is not (share == 1.0):
            raise AssertionError(f"{handle.loaded_bytes:,} of {handle.size_bytes:,} bytes are placed at {share:.0%}")
        handle.module(x)
        output = handle.module(x).cpu()
        held = handle.held_bytes / budget_bytes
    handle.unload()
    return output, held


def budget(handles: Sequence[ModelHandle], share: float) -> int:
    """Bytes for the handles; a little more than all of them where they are to be whole."""
    return room(handles, share) + (MB if share == 1.0 else 0)


def _inferred(module: nn.Module) -> ModelHandle:
    generator = torch.Generator().manual_seed(1)
    with torch.inference_mode():
        for parameter in module.parameters():
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return ModelHandle("component", module, "oneshot")


def dummy_engine(place: Place) -> Iterator[Figure]:
    """The dummy engine through a session on the device, against the same on the CPU."""
    library = ModelLibrary([])
    request = SpeakRequest(text="Good morning.", seed=3, options={"noise": 0.1})
    settings = {"compute.device": place.name, "compute.vram_reserve_mb": "0"}
    if not place.cuda:
        settings["compute.simulate_vram_mb"] = str(SIMULATED_BYTES >> 20)
    outputs = []
    for compute in (settings, settings | {"compute.vram_mode": "none"}, {}):
        session = Session(resolve(compute, {}), library)
        outputs.append(session.speak(session.find("dummy", "tones"), request).audio.samples)
    difference = float((outputs[0] - outputs[1]).abs().max())
    to_cpu = float((outputs[0] - outputs[2]).abs().max())
    yield Figure(
        name="dummy engine: largest difference between none and whole", value=difference, unit="", at_most=0,
        note=f"to the CPU {to_cpu:.1e}",
    )  # fmt: skip


def piper_voices(place: Place) -> Iterator[Figure]:
    """Piper's recorded voices, encoder and decoder, without a text: from recorded symbols and noise."""
    if importlib.util.find_spec("safetensors") is None:
        raise ImportError("safetensors is needed to read the recorded voices")
    with tempfile.TemporaryDirectory() as folder:
        for name in VOICES:
            yield voice_figure(place, name, Path(folder))


def voice_figure(place: Place, name: str, folder: Path) -> Figure:
    from safetensors.torch import load_file

    from mizuoto_runtime.engines.piper.weights import load_voice

    onnx = folder / f"{name}.onnx"
    onnx.write_bytes(lzma.decompress((GOLDEN / f"{name}.onnx.xz").read_bytes()))
    shutil.copy(GOLDEN / f"{name}.onnx.json", folder)
    arrays = load_file(GOLDEN / f"{name}.safetensors")
    case = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))["voices"][name][0]
    outputs, peaks = {}, []
    for share_name, share in SHARES.items():
        voice = load_voice(onnx)
        handles = [component(voice.encoder, "oneshot", "encoder"), component(voice.decoder, "oneshot", "decoder")]
        rig = place.rig(budget(handles, share))
        with rig.context().use(handles, 0):
            outputs[share_name] = spoken(voice, arrays, case, place.name)
            peaks.append(sum(handle.held_bytes for handle in handles) / rig.size_bytes)
        for handle in handles:
            handle.unload()
    different = max(float((each - outputs["whole"]).abs().max()) for each in outputs.values())
    recorded = float((outputs["whole"] - arrays["0.samples"]).abs().max())
    return Figure(
        name=f"Piper {name}: largest difference between none, halfway, whole", value=different, unit="", at_most=0,
        note=f"to onnxruntime on a CPU {recorded:.1e}; held at most {max(peaks):.3f} of the budget",
    )  # fmt: skip


def spoken(voice: Any, arrays: dict[str, Tensor], case: dict[str, Any], device: str) -> Tensor:
    noise_scale, length_scale, noise_w = case["scales"]
    encoded = voice.encoder(
        arrays["0.ids"].to(device),
        noise=arrays["0.duration_noise"],
        noise_w=noise_w,
        length_scale=length_scale,
        speaker_id=case["speaker_id"],
    )
    samples: Tensor = voice.decoder(encoded, noise=arrays["0.latent_noise"], noise_scale=noise_scale)
    return samples.cpu()


def section(place: Place) -> Iterator[Figure]:
    yield from modules(place)
    yield from dummy_engine(place)
    yield from piper_voices(place)
