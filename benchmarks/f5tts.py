"""F5-TTS and E2-TTS at their real sizes, with random weights made on the fly: speed beside upstream, and memory.

    python -m benchmarks.f5tts speed [--model v1] [--dtype float32] [--frames 562] [--steps 3] [--rounds 3]
    python -m benchmarks.f5tts parts [--model v1] [--dtype float32] [--frames 562]
    python -m benchmarks.f5tts memory [--model v1] [--dtype float32]

speed: seconds a step, conditioned and not, ours and upstream's taking turns, so that a busy machine slows both; what is
done once for all steps is in it. Medians over the rounds after a warm-up, and the largest difference of the mel
spectrograms. Needs f5-tts 1.1.22; run it in an environment that has both. parts: where a step's time goes. memory: the
least working set, the bytes that cross to a device in a step, and the resident memory while a file is loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.loading import report_peaks
from benchmarks.timing import median, median_of, take_turns
from mizuoto_runtime.engines.f5tts.config import parse_architecture
from mizuoto_runtime.engines.f5tts.layers import Attention, Mlp
from mizuoto_runtime.engines.f5tts.network import Network
from mizuoto_runtime.engines.f5tts.sampler import Batch, Sampling, Solver, batch_of, draw_noise
from mizuoto_runtime.engines.f5tts.text import Vocabulary
from mizuoto_runtime.engines.f5tts.weights import KINDS, load_network, network_name
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.nn.linear import pack
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.weights.entries import Entry
from mizuoto_runtime.weights.pages import give_back_pages

MB = 1_000_000
TOKENS = 2545
TEXT = 120
BASE = {"dim": 1024, "depth": 22, "heads": 16, "ff_mult": 2, "text_dim": 512, "conv_layers": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "v1": ("DiT", {**BASE, "text_mask_padding": True}),
    "base": ("DiT", {**BASE, "text_mask_padding": False, "pe_attn_head": 1}),
    "e2": ("UNetT", {"dim": 1024, "depth": 24, "heads": 16, "ff_mult": 4, "text_mask_padding": False,
                     "pe_attn_head": 1}),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "parts", "memory", "load"))
    parser.add_argument("--model", choices=tuple(MODELS), default="v1")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--frames", type=int, default=562)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--depth", type=int, help="fewer blocks, for a first look")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.depth:
        MODELS[options.model][1]["depth"] = options.depth
    dtype = getattr(torch, options.dtype)
    with torch.inference_mode():
        if options.what == "speed":
            speed(options.model, dtype, options.frames, options.steps, options.rounds)
        elif options.what == "parts":
            parts(options.model, dtype, options.frames)
        elif options.what == "memory":
            memory(options.model, dtype)
        else:
            load(options.folder)


def empty_network(model: str) -> Network:
    backbone, arch = MODELS[model]
    architecture = parse_architecture(Entry(dict(arch), model), backbone)  # type: ignore[arg-type]
    with torch.device("meta"):
        network = KINDS[architecture.backbone](architecture, TOKENS)
    return network.eval().requires_grad_(False)


def upstream_shapes(model: str) -> dict[str, tuple[int, ...]]:
    """Official names of the weights, with their shapes."""
    from f5_tts.model import DiT, UNetT

    backbone, arch = MODELS[model]
    kind = {"DiT": DiT, "UNetT": UNetT}[backbone]
    with torch.device("meta"):
        module = kind(**arch, text_num_embeds=TOKENS, mel_dim=100)
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def random_weight(name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Small; gains are ones, and rotary frequencies what they are."""
    if name in ("frequencies", "rotary_embed.inv_freq"):
        return (1.0 / (10_000 ** (torch.arange(0, 2 * shape[0], 2).float() / (2 * shape[0])))).to(dtype)
    weight = torch.ones(shape, dtype=dtype)
    return weight if name.endswith((".g", ".gain")) else weight.normal_(0, 0.02, generator=generator(0))


def sharing(model: str, dtype: torch.dtype) -> tuple[Network, Any]:
    """Our network and upstream's model, with the same tensors."""
    from f5_tts.model import CFM, DiT, UNetT

    backbone, arch = MODELS[model]
    weights = {name: random_weight(name, shape, dtype) for name, shape in upstream_shapes(model).items()}
    ours = empty_network(model)
    ours.load_state_dict({network_name(name, backbone): weight for name, weight in weights.items()}, assign=True)
    theirs = {"DiT": DiT, "UNetT": UNetT}[backbone](**arch, text_num_embeds=TOKENS, mel_dim=100).to(dtype)
    theirs.load_state_dict(weights, assign=True)
    return ours.requires_grad_(False), CFM(transformer=theirs.requires_grad_(False)).to(dtype).eval()


def a_batch(frames: int) -> Batch:
    """Half of the frames are the reference's."""
    mel = torch.randn(frames // 2, 100, generator=generator(2)) - 4
    ids = torch.randint(TOKENS, (TEXT,), generator=generator(3)).tolist()
    return batch_of([mel], [ids], [frames])


def run_ours(network: Network, batch: Batch, steps: int) -> Tensor:
    how = Sampling(nfe_step=steps)
    return Solver(network, batch, how, draw_noise(batch, network.dtype, [generator(1)])).run("cpu")


def run_upstream(model: Any, batch: Batch, steps: int) -> Tensor:
    made, _ = model.sample(
        cond=batch.reference[:, : int(batch.kept.sum())],
        text=batch.ids,
        duration=int(batch.frames),
        steps=steps,
        cfg_strength=2.0,
        sway_sampling_coef=-1.0,
        seed=1,
    )
    result: Tensor = made
    return result


def speed(model: str, dtype: torch.dtype, frames: int, steps: int, rounds: int) -> None:
    ours, theirs = sharing(model, dtype)
    pack(ours, many_rows=[ours.blocks])
    batch = a_batch(frames)
    made: dict[str, Tensor] = {}

    def keep(name: str, run: Callable[[], Tensor]) -> Callable[[], None]:
        def way() -> None:
            made[name] = run()

        return way

    ways = {
        "upstream": keep("upstream", lambda: run_upstream(theirs, batch, steps)),
        "ours": keep("ours", lambda: run_ours(ours, batch, steps)),
    }
    seconds = take_turns(ways, rounds, warm_up=1)
    difference = (made["ours"].float() - made["upstream"].float()).abs()
    print(f"{model}, {dtype}, {frames} frames, {torch.get_num_threads()} threads, {steps} steps, {rounds} rounds")
    for name, measured in seconds.items():
        print(f"  {name:8} {median(measured) / steps:6.2f} s a step (best {min(measured) / steps:.2f})")
    ratio = median_of(seconds, lambda one: one["ours"] / one["upstream"])
    print(f"  ratio    {ratio:6.2f}; largest difference {difference.max():.1e}, mean {difference.mean():.1e}")


def parts(model: str, dtype: torch.dtype, frames: int) -> None:
    """Each part is timed with hooks while whole steps run."""
    network = empty_network(model)
    network.load_state_dict(
        {name: random_weight(name, shell.shape, dtype) for name, shell in network.state_dict().items()}, assign=True
    )
    batch, spent = a_batch(frames), dict[str, float]()
    run_ours(network.requires_grad_(False), batch, 1)
    for name, module in network.named_modules():
        label = _part(name, module)
        if label:
            _timed(module, label, spent)
    began = time.perf_counter()
    run_ours(network, batch, 2)
    whole = time.perf_counter() - began
    print(f"{model}, {dtype}, {frames} frames: {whole / 2:.2f} s a step, of which")
    for label, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {label:40} {seconds / whole:6.1%}")


def _part(name: str, module: nn.Module) -> str:
    if isinstance(module, Attention):
        return "attention, with its projections"
    if isinstance(module, nn.Linear) and "attention" in name:
        return "  its projections"
    if isinstance(module, Mlp):
        return "MLPs"
    known = {"text": "text, once", "time": "time, once", "input": "input and its convolutions"}
    return "modulations, once" if "modulation" in name and isinstance(module, nn.Linear) else known.get(name, "")


def _timed(module: nn.Module, label: str, spent: dict[str, float]) -> None:
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            spent[label] = spent.get(label, 0.0) + time.perf_counter() - began

    module.forward = forward  # type: ignore[method-assign]


def memory(model: str, dtype: torch.dtype) -> None:
    network = empty_network(model).to(dtype)
    handle = ModelHandle("transformer", network, "oneshot")
    handle.mark(network.text.tokens, "gather")
    per_step = sum(unit.weight_bytes for unit in map(_Size, network.each_step()))
    once = sum(unit.weight_bytes for unit in map(_Size, network.once()))
    print(f"{model}, {dtype}: {handle.size_bytes / MB:.0f} MB, least {handle.minimum_bytes(1) / MB:.0f} MB")
    print(f"  all streamed: {per_step / MB:.0f} MB a step, {once / MB:.0f} MB once")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        backbone, arch = MODELS[model]
        (folder / "arch.json").write_text(json.dumps({"backbone": backbone, **arch}), encoding="utf-8")
        weights = {
            f"ema_model.transformer.{key}": random_weight(key, shape, dtype)
            for key, shape in upstream_shapes(model).items()
        }
        save_file(weights, folder / "model_1.safetensors")
        del weights
        subprocess.run([sys.executable, "-m", "benchmarks.f5tts", "load", "--folder", name], check=True)


class _Size:
    def __init__(self, module: nn.Module) -> None:
        self.weight_bytes = sum(parameter.nbytes for parameter in module.parameters() if parameter.ndim > 1)


def load(folder: Path) -> None:
    """In a process of its own."""
    path = folder / "model_1.safetensors"

    def loaded() -> nn.Module:
        network = load_network(path, Vocabulary({str(number): number for number in range(TOKENS)}))
        pack(network, lambda weight: give_back_pages([weight]), many_rows=[network.blocks])
        return network

    report_peaks(path, loaded)


if __name__ == "__main__":
    main()
