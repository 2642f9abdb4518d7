"""Qwen3-TTS's codec at its real sizes, random weights: this pack's decoder and encoder against upstream's, in one run.

    python -m benchmarks.qwen3tts_codec [--dtype float32] [--frames 48] [--rounds 3]

Run in an environment with `qwen-tts==0.1.1` and this pack's own packages. The two take turns, so that a busy machine
slows both; each figure is the median over the rounds after a warm-up. Peak memory is that of the tensors which are
alive at once, without weights. The checkpoint is written to a temporary folder, in the official layout.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model
from torch import Tensor

from mizuoto_runtime.engines.qwen3tts.codec_decoder import CodecDecoder
from mizuoto_runtime.engines.qwen3tts.codec_encoder import CodecEncoder
from mizuoto_runtime.engines.qwen3tts.codec_estimates import decoder_bytes, encoder_bytes
from mizuoto_runtime.engines.qwen3tts.codec_weights import load_codec
from tests.memory.live_bytes import LiveBytes

REAL_DECODER = {"codebook_dim": 512, "head_dim": 64, "hidden_size": 512, "intermediate_size": 1024}
FRAMES_HZ = 12.5
SECONDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--frames", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        write_checkpoint(Path(folder))
        theirs = Qwen3TTSTokenizerV2Model.from_pretrained(folder, dtype=dtype).eval()
        decoder, encoder = load_codec(Path(folder), dtype)
        assert encoder is not None
        threads = torch.get_num_threads()
        print(f"torch {torch.__version__}, CPU, {threads} threads, {options.dtype}, {options.rounds} rounds")
        compare_decoding(theirs, decoder, options.frames, options.rounds)
        compare_encoding(theirs, encoder, options.rounds)


def write_checkpoint(folder: Path) -> None:
    """Random weights of which none keeps a neutral initial value."""
    torch.manual_seed(1)
    model = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(decoder_config=REAL_DECODER))
    for name, weight in model.state_dict().items():
        if name.endswith("cluster_usage"):
            weight.uniform_(0.5, 1.5)
        elif name.endswith(("embedding_sum", "embed_sum")):
            weight.normal_()
        elif name.endswith(("alpha", "beta", "scale", "gamma")):
            weight.uniform_(0.1, 0.3)
    model.save_pretrained(folder)


def compare_decoding(theirs: Any, decoder: CodecDecoder, frames: int, rounds: int) -> None:
    codes = torch.randint(decoder.config.codebook_size, (decoder.config.quantizers, frames))
    runs: dict[str, Callable[[], Tensor]] = {
        "upstream": lambda: theirs.decoder.chunked_decode(codes[None])[0, 0],
        "ours": lambda: decoder.decode(codes),
    }
    results, seconds = take_turns(runs, rounds)
    difference = float((results["upstream"].float() - results["ours"]).abs().max())
    rates = {name: frames / each for name, each in seconds.items()}
    print(
        f"decode, {frames} frames: upstream {rates['upstream']:.1f} frames/s, ours {rates['ours']:.1f} "
        f"({rates['ours'] / FRAMES_HZ:.1f} times real time), ratio {rates['ours'] / rates['upstream']:.2f}, "
        f"max difference {difference:.1e}"
    )
    print_peaks(runs, decoder_bytes(decoder, frames, torch.device("cpu")))


def compare_encoding(theirs: Any, encoder: CodecEncoder, rounds: int) -> None:
    samples = 0.1 * torch.randn(SECONDS * 24_000)
    mask = torch.ones(1, len(samples), dtype=torch.long)
    dtype = encoder.output.weight.dtype
    runs: dict[str, Callable[[], Tensor]] = {
        "upstream": lambda: theirs.encode(samples[None].to(dtype), mask).audio_codes[0].T,
        "ours": lambda: encoder.encode(samples),
    }
    results, seconds = take_turns(runs, rounds)
    equal = float((results["upstream"] == results["ours"]).float().mean())
    print(
        f"encode, {SECONDS} s: upstream {seconds['upstream']:.2f} s, ours {seconds['ours']:.2f} s, "
        f"ratio {seconds['upstream'] / seconds['ours']:.2f}, {100 * equal:g} % of the codes equal"
    )
    print_peaks(runs, encoder_bytes(encoder, len(samples), torch.device("cpu")))


def take_turns(runs: dict[str, Callable[[], Tensor]], rounds: int) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Each run's result, and its median time in seconds."""
    results = {name: run() for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return results, {name: statistics.median(each) for name, each in times.items()}


def print_peaks(runs: dict[str, Callable[[], Tensor]], estimated_bytes: int) -> None:
    peaks = {}
    for name, run in runs.items():
        with LiveBytes() as live:
            run()
        peaks[name] = live.peak_bytes / 1e6
    estimated = f"estimated {estimated_bytes / 1e6:.0f} MB"
    print(f"    working memory: upstream {peaks['upstream']:.0f} MB, ours {peaks['ours']:.0f} MB, {estimated}")


if __name__ == "__main__":
    main()
