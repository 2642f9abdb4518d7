"""OmniVoice's audio tokenizer at its real sizes, random weights: this pack's two halves against upstream's, in one run.

    python -m benchmarks.omnivoice_codec [--frames 100] [--seconds 5] [--rounds 3] [--threads N]

Run in an environment with transformers 5.24.0, which has upstream's class, and this pack's own packages. The two take
turns, so that a busy machine slows both; each figure is the median over the rounds after a warm-up. CPU seconds are
those of the process. Peak memory is that of the tensors which are alive at once, without weights. The checkpoint is
written to a temporary folder, in the official layout. Loading is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.sections.load_one import reset_peak, resident_bytes, touch
from mizuoto_runtime.engines.omnivoice.codec_estimates import decoder_bytes, encoder_bytes
from mizuoto_runtime.engines.omnivoice.codec_weights import load_modules
from tests.memory.live_bytes import LiveBytes

RATIOS = [8, 5, 4, 2, 3]
ACOUSTIC = {
    "model_type": "dac",
    "encoder_hidden_size": 64,
    "downsampling_ratios": RATIOS,
    "decoder_hidden_size": 1024,
    "upsampling_ratios": RATIOS,
    "hidden_size": 256,
}
BANDWIDTHS = [0.5, 1, 1.5, 2]
RATE_HZ = 24_000
FRAMES_HZ = 25
CPU = torch.device("cpu")
Runs = dict[str, Callable[[], Tensor]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        print_loading(options.load)
        return
    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model = write_checkpoint(Path(folder))
        print(f"torch {torch.__version__}, CPU, {torch.get_num_threads()} threads, {options.rounds} rounds")
        subprocess.run([sys.executable, "-m", "benchmarks.omnivoice_codec", "--load", folder], check=True)
        compare(model, Path(folder), options)


def write_checkpoint(folder: Path) -> Any:
    """Random weights of which none keeps a neutral initial value; returns upstream's model."""
    from transformers import HiggsAudioV2TokenizerConfig, HiggsAudioV2TokenizerModel

    torch.manual_seed(1)
    config = HiggsAudioV2TokenizerConfig(
        target_bandwidths=BANDWIDTHS,
        acoustic_model_config=ACOUSTIC,
        semantic_model_config={"model_type": "hubert", "mask_time_prob": 0.0},
    )
    model = HiggsAudioV2TokenizerModel(config).eval()
    for name, weight in model.state_dict().items():
        if name.endswith("alpha"):
            weight.uniform_(0.3, 1.3)
        elif name.endswith("codebook.embed"):
            weight.normal_()
        elif weight.ndim > 1 and "original" not in name:
            weight.normal_().div_(weight[0].numel() ** 0.5)
    model.save_pretrained(folder)
    return model


def compare(theirs: Any, folder: Path, options: argparse.Namespace) -> None:
    config, encoder, decoder = load_modules(folder)
    wave = 0.1 * torch.randn(1, int(options.seconds * FRAMES_HZ) * config.hop_length)
    codes = torch.randint(config.codebook_size, (config.quantizers, options.frames))
    encoding: Runs = {"upstream": lambda: theirs.encode(wave[None]).audio_codes[0], "ours": lambda: encoder(wave)}
    decoding: Runs = {"upstream": lambda: theirs.decode(codes[None]).audio_values[0], "ours": lambda: decoder(codes)}
    results = take_turns(f"encode, {options.seconds:g} s", encoding, options.rounds)
    print(f"    {100 * float((results['upstream'] == results['ours']).float().mean()):g} % of the codes equal")
    print_peaks(encoding, encoder_bytes(config, wave.shape[1], CPU))
    results = take_turns(f"decode, {options.frames} frames", decoding, options.rounds)
    scale = float(results["upstream"].abs().max())
    print(f"    max difference {float((results['upstream'] - results['ours']).abs().max()) / scale:.1e} of the peak")
    print_peaks(decoding, decoder_bytes(config, options.frames, CPU))


def take_turns(what: str, runs: Runs, rounds: int) -> dict[str, Tensor]:
    """Each run's result; prints its median times."""
    results = {name: run() for name, run in runs.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began, cpu_began = time.perf_counter(), time.process_time()
            run()
            times[name].append((time.process_time() - cpu_began, time.perf_counter() - began))
    cpu, wall = ({name: statistics.median(e[i] for e in each) for name, each in times.items()} for i in (0, 1))
    print(
        f"{what}: upstream {cpu['upstream']:.2f} CPU s ({wall['upstream']:.2f} s), ours {cpu['ours']:.2f} CPU s "
        f"({wall['ours']:.2f} s), ratio {cpu['ours'] / cpu['upstream']:.2f} ({wall['ours'] / wall['upstream']:.2f})"
    )
    return results


def print_peaks(runs: Runs, estimated_bytes: int) -> None:
    peaks = {}
    for name, run in runs.items():
        with LiveBytes() as live:
            run()
        peaks[name] = live.peak_bytes / 1e6
    estimated = f"estimated {estimated_bytes / 1e6:.0f} MB"
    print(f"    working memory: upstream {peaks['upstream']:.0f} MB, ours {peaks['ours']:.0f} MB, {estimated}")


def print_loading(folder: Path) -> None:
    """How much RAM loading takes at most, once all weights were read, beside what was loaded. Linux only."""
    reset_peak()
    before = resident_bytes("VmHWM")
    _, encoder, decoder = load_modules(folder)
    touch([encoder, decoder])
    taken = resident_bytes("VmHWM") - before
    weights = [weight for module in (encoder, decoder) for weight in module.parameters()]
    loaded = sum(weight.nbytes for weight in weights)
    stored = (folder / "model.safetensors").stat().st_size
    print(
        f"loading: {loaded / 1e6:.0f} MB of {stored / 1e6:.0f} MB in the file, peak {taken / 1e6:.0f} MB of RAM, "
        f"{taken / loaded:.2f} times what was loaded"
    )


if __name__ == "__main__":
    main()
