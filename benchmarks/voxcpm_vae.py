"""VoxCPM's audio VAE at its real sizes, with random weights: this pack's beside upstream's, in one run, and memory.

    python -m benchmarks.voxcpm_vae speed [--model 0.5B] [--frames 50] [--rounds 3] [--threads 2]
    python -m benchmarks.voxcpm_vae memory [--model 0.5B]

speed: seconds to decode and to encode as many latent frames (25 a second), ours and upstream's taking turns, so that a
busy machine slows both; medians over the rounds after a warm-up, the largest difference, and working memory, which is
that of the tensors alive at once. Needs voxcpm 2.0.3; run it in an environment that has both. memory: the least working
set, and the resident memory while the file is loaded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.loading import status_bytes
from benchmarks.timing import median, median_of, take_turns
from mizuoto_runtime.engines.voxcpm.vae_config import KEY, VaeConfig, parse_vae_config
from mizuoto_runtime.engines.voxcpm.vae_estimates import decoder_bytes, encoder_bytes
from mizuoto_runtime.engines.voxcpm.vae_layout import convolutions, others, output_names, outputs
from mizuoto_runtime.engines.voxcpm.vae_weights import DIRECTION, NORM, PICKLE, load_vae
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.weights.entries import Entry
from tests.memory.live_bytes import LiveBytes

MB = 1_000_000
LAST_NORM = 0.2
CPU = torch.device("cpu")
FIRST = {"latent_dim": 64, "encoder_rates": [2, 5, 8, 8], "decoder_rates": [8, 8, 5, 2]}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "0.5B": ("voxcpm", {**FIRST, "encoder_dim": 128, "decoder_dim": 1536, "sample_rate": 16_000}),
    "1.5": ("voxcpm", {"latent_dim": 64, "encoder_dim": 64, "encoder_rates": [2, 3, 6, 7, 7], "decoder_dim": 2048,
                       "decoder_rates": [7, 7, 6, 3, 2], "sample_rate": 44_100}),
    "2": ("voxcpm2", {**FIRST, "encoder_dim": 128, "decoder_dim": 2048, "decoder_rates": [8, 6, 5, 2, 2, 2],
                      "sample_rate": 16_000, "out_sample_rate": 48_000}),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "load"))
    parser.add_argument("--model", choices=tuple(MODELS), default="0.5B")
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = config_of(options.model)
    if options.what == "load":
        load(options.folder, config)
        return
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        folder = Path(name)
        write_checkpoint(folder, config)
        if options.what == "memory":
            memory(options.model, folder, config)
        else:
            speed(options.model, folder, config, options.frames, options.rounds)


def config_of(model: str) -> VaeConfig:
    architecture, sizes = MODELS[model]
    return parse_vae_config(Entry({KEY: sizes}, model), architecture)  # type: ignore[arg-type]


def write_checkpoint(folder: Path, config: VaeConfig) -> None:
    """Random weights in the official layout, values staying near 1 from layer to layer."""
    generator = torch.Generator().manual_seed(1)
    weights = {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in others(config).items()}
    for name, weight in weights.items():
        if name.endswith("alpha") or "scale_embed" in name:
            weight += 1
        elif config.bounds_hz is not None and name.endswith("boundaries"):
            weights[name] = torch.tensor(config.bounds_hz, dtype=torch.int32)
    last = output_names(config)[1]
    for name, shape in convolutions(config).items():
        transposed = outputs(name, shape, config) != shape[0]
        norm = (shape[2] / 4) ** 0.5 if transposed else 0.4 if name.endswith("block.3") else 1.0
        norm = LAST_NORM if name == last else norm
        weights[f"{name}{NORM}"] = torch.full((shape[0], 1, 1), norm)
        weights[f"{name}{DIRECTION}"] = torch.randn(shape, generator=generator)
        weights[f"{name}.bias"] = 0.1 * torch.randn(outputs(name, shape, config), generator=generator)
    torch.save({"state_dict": weights}, folder / PICKLE)


def speed(model: str, folder: Path, config: VaeConfig, frames: int, rounds: int) -> None:
    theirs = upstream(model, folder)
    decoder, encoder = load_vae(folder, config)
    assert encoder is not None
    latents = torch.randn(frames, config.latent_dim)
    samples = 0.1 * torch.randn(frames * config.input_hop)
    print(f"{model}, {frames} frames, torch {torch.__version__}, CPU, {torch.get_num_threads()} threads")
    compare(
        "decode",
        {"upstream": lambda: theirs.decode(latents.T[None])[0, 0], "ours": lambda: decoder.decode(latents)},
        rounds,
        decoder_bytes(config, frames, CPU),
    )
    compare(
        "encode",
        {
            "upstream": lambda: theirs.encode(samples[None], config.input_rate_hz)[0].T,
            "ours": lambda: encoder.encode(samples),
        },
        rounds,
        encoder_bytes(config, len(samples), CPU),
    )


def upstream(model: str, folder: Path) -> Any:
    from voxcpm.modules.audiovae import AudioVAE, AudioVAEConfig, AudioVAEConfigV2, AudioVAEV2

    architecture, sizes = MODELS[model]
    classes = {"voxcpm": (AudioVAE, AudioVAEConfig), "voxcpm2": (AudioVAEV2, AudioVAEConfigV2)}
    kind, settings = classes[architecture]
    with torch.device("meta"):
        vae: nn.Module = kind(settings(**sizes))
    weights = torch.load(folder / PICKLE, weights_only=True)["state_dict"]
    missing, unexpected = vae.load_state_dict(weights, strict=False, assign=True)
    assert not unexpected and all("fc_logvar" in name for name in missing)
    vae.encoder.fc_logvar = nn.Identity()
    return vae.eval().requires_grad_(False)


def compare(what: str, ways: dict[str, Callable[[], Tensor]], rounds: int, estimated_bytes: int) -> None:
    theirs, ours = ways["upstream"](), ways["ours"]()
    difference = float((theirs - ours).abs().max())
    seconds = take_turns(ways, rounds, warm_up=1)
    ratio = median_of(seconds, lambda each: each["ours"] / each["upstream"])
    print(
        f"{what}: upstream {median(seconds['upstream']):.3f} s, ours {median(seconds['ours']):.3f} s, ratio "
        f"{ratio:.2f}; spread {float(theirs.std()):.2f}, max difference {difference:.1e}"
    )
    peaks = {}
    for name, way in ways.items():
        with LiveBytes() as live:
            way()
        peaks[name] = live.peak_bytes / MB
    estimated = f"estimated {estimated_bytes / MB:.0f} MB"
    print(f"    working memory: upstream {peaks['upstream']:.0f} MB, ours {peaks['ours']:.0f} MB, {estimated}")


def memory(model: str, folder: Path, config: VaeConfig) -> None:
    for part in load_vae(folder, config):
        assert part is not None
        handle = ModelHandle(type(part).__name__, part, "oneshot")
        least = handle.minimum_bytes(1)
        print(
            f"{handle.name}: {handle.size_bytes / MB:.0f} MB, least working set {least / MB:.0f} MB, "
            f"{least / handle.size_bytes:.2f} of it"
        )
    command = [sys.executable, "-m", "benchmarks.voxcpm_vae", "load", "--model", model, "--folder", str(folder)]
    subprocess.run(command, check=True)


def load(folder: Path, config: VaeConfig) -> None:
    """Print the resident memory's peak while loading."""
    before = status_bytes("VmRSS")
    modules = load_vae(folder, config)
    grown, size = status_bytes("VmHWM") - before, (folder / PICKLE).stat().st_size
    print(
        f"loading {len(modules)} parts of a file of {size / MB:.0f} MB: peak {grown / MB:.0f} MB, {grown / size:.2f} "
        f"of it; {(status_bytes('VmRSS') - before) / MB:.0f} MB stay"
    )


if __name__ == "__main__":
    main()
