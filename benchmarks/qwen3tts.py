"""Qwen3-TTS at its real sizes, with random weights made on the fly: speed beside upstream, and memory.

    python -m benchmarks.qwen3tts speed [--dtype float32] [--frames 8] [--rounds 5] [--threads 2]
    python -m benchmarks.qwen3tts memory [--size 1.7B]

speed: frames a second of talker and code predictor (0.6B), ours and upstream's taking turns, so that a busy machine
slows both; medians over the rounds after a warm-up, and whether the codes are equal. Needs qwen-tts 0.1.1; run it in an
environment that has both. memory: the talker's least working set in bfloat16, the resident memory while a file is
loaded, and the estimate of keys and values against what they take.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.loading import report_peaks
from mizuoto_runtime.engines.qwen3tts.config import GenerationOptions, Qwen3TtsConfig, read_config
from mizuoto_runtime.engines.qwen3tts.estimates import talker_bytes
from mizuoto_runtime.engines.qwen3tts.generate import Writer
from mizuoto_runtime.engines.qwen3tts.prompt import Request, build_prompt
from mizuoto_runtime.engines.qwen3tts.talker import Talker
from mizuoto_runtime.engines.qwen3tts.text import TextIds
from mizuoto_runtime.lm.cache import CacheKind, new_cache, peak_bytes, position_bytes
from mizuoto_runtime.lm.decoder import DecoderConfig
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.nn.linear import lay_out_in_blocks, pack
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.weights.checkpoint import Checkpoint
from mizuoto_runtime.weights.pages import give_back_pages
from tests.memory.live_bytes import LiveBytes

MB = 1_000_000
LAYERS = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rope_theta": 1_000_000}
PREDICTOR = LAYERS | {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 5,
    "num_code_groups": 16,
    "vocab_size": 2048,
}
TALKER: dict[str, Any] = LAYERS | {
    "num_hidden_layers": 28,
    "num_code_groups": 16,
    "vocab_size": 3072,
    "text_vocab_size": 151_936,
    "text_hidden_size": 2048,
    "rope_scaling": {"interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default", "type": "default"},
    "codec_pad_id": 2148,
    "codec_bos_id": 2149,
    "codec_eos_token_id": 2150,
    "codec_think_id": 2154,
    "codec_nothink_id": 2155,
    "codec_think_bos_id": 2156,
    "codec_think_eos_id": 2157,
    "codec_language_id": {"english": 2050},
    "spk_id": {"vivian": 3065},
    "spk_is_dialect": {"vivian": False},
    "code_predictor_config": PREDICTOR,
}
SIZES = {
    "0.6B": {"hidden_size": 1024, "intermediate_size": 3072},
    "1.7B": {"hidden_size": 2048, "intermediate_size": 6144},
}
TEXT = TextIds((151_644, 77_091, 198), tuple(range(1000, 1008)))
TAIL = (151_645, 198, 151_644, 77_091, 198)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "load"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--size", choices=tuple(SIZES), default="1.7B")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.what == "speed":
        speed(getattr(torch, options.dtype), options.frames, options.rounds)
    elif options.what == "memory":
        memory(options.size)
    else:
        load(options.folder)


def config_json(size: str) -> dict[str, Any]:
    return {
        "model_type": "qwen3_tts",
        "tts_model_type": "custom_voice",
        "tts_model_size": "0b6",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "talker_config": TALKER | SIZES[size],
    }


def configured(size: str) -> Qwen3TtsConfig:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config_json(size)), encoding="utf-8")
        return read_config(Path(folder))


def random_weights(talker: Talker, dtype: torch.dtype) -> dict[str, Tensor]:
    """By name, small; those of norms are ones, and the end is never likely."""
    rng = generator(0)
    weights = {}
    for name, shell in talker.state_dict().items():
        weight = torch.ones(shell.shape, dtype=dtype)
        weights[name] = weight if "norm" in name else weight.normal_(0, 0.02, generator=rng)
    weights["codec_head.weight"][TALKER["codec_eos_token_id"]] = 0
    return weights


def empty_talker(config: Qwen3TtsConfig) -> Talker:
    with torch.device("meta"):
        return Talker(config.talker).eval().requires_grad_(False)


def speed(dtype: torch.dtype, frames: int, rounds: int) -> None:
    config = configured("0.6B")
    talker = empty_talker(config)
    weights = random_weights(talker, dtype)
    talker.load_state_dict(weights, assign=True)
    theirs = upstream(weights)
    lay_out_in_blocks(talker.code_predictor.model.layers)
    pack(talker)
    runs: dict[str, Callable[[], Tensor]] = {
        "upstream": lambda: run_upstream(theirs, frames),
        "ours": lambda: run_ours(config, talker, frames),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    codes: dict[str, Tensor] = {}
    for number in range(rounds + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            codes[name] = run()
            if number:
                rates[name].append(codes[name].shape[1] / (time.perf_counter() - started))
    print(f"0.6B, {dtype}, {torch.get_num_threads()} threads, {frames} frames, prompt included, {rounds} rounds")
    for name, measured in rates.items():
        print(f"  {name:8} {statistics.median(measured):6.2f} frames/s (best {max(measured):.2f})")
    ratios = [ours / other for ours, other in zip(rates["ours"], rates["upstream"], strict=True)]
    print(f"  ratio    {statistics.median(ratios):6.2f}, codes equal: {torch.equal(codes['ours'], codes['upstream'])}")


def run_ours(config: Qwen3TtsConfig, talker: Talker, frames: int) -> Tensor:
    request = Request(text=TEXT, language="english", speaker="vivian", non_streaming=True)
    how = GenerationOptions(max_new_tokens=frames + 1).resolved()
    writer = Writer(talker, [build_prompt(talker, config, request, torch.device("cpu"))], how, generator(1))
    while writer.frame():
        pass
    return writer.codes()[0]


def upstream(weights: dict[str, Tensor]) -> Any:
    """Upstream's model with the same weights."""
    from qwen_tts.core.models import Qwen3TTSConfig, Qwen3TTSForConditionalGeneration

    with torch.device("meta"):
        model = Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**config_json("0.6B")))
    model.load_state_dict({f"talker.{name}": weight for name, weight in weights.items()}, assign=True)
    for decoder in (model.talker.model, model.talker.code_predictor.model):
        decoder.rotary_emb = type(decoder.rotary_emb)(decoder.config)
    return model.eval()


def run_upstream(model: Any, frames: int) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        codes, _ = model.generate(
            input_ids=[torch.tensor([[*TEXT.role, *TEXT.ids, *TAIL]])],
            languages=["english"],
            speakers=["vivian"],
            non_streaming_mode=True,
            max_new_tokens=frames + 1,
        )
    result: Tensor = codes[0].T
    return result


def memory(size: str) -> None:
    config = configured(size)
    talker = empty_talker(config)
    least(talker, size)
    keys(config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config_json(size)), encoding="utf-8")
        weights = {f"talker.{key}": weight for key, weight in random_weights(talker, torch.bfloat16).items()}
        save_file(weights, folder / "model.safetensors")
        del weights
        subprocess.run([sys.executable, "-m", "benchmarks.qwen3tts", "load", "--folder", name], check=True)


def least(talker: Talker, size: str) -> None:
    """The least working set, from shapes alone."""
    half = talker.to(torch.bfloat16)
    handle = ModelHandle("talker", half, "sequence")
    handle.mark(half.model.text_embedding, "gather")
    handle.mark(half.code_predictor, "hot")
    print(f"{size}, bfloat16: talker {handle.size_bytes / MB:.0f} MB, least {handle.minimum_bytes(1) / MB:.0f} MB")


def keys(config: Qwen3TtsConfig) -> None:
    """What is reserved for keys and values of a text of 40 tokens against what they take at their largest, measured."""
    decoder, prompt, new = config.talker.decoder, 64, 16 * 40 + 64
    each = position_bytes(decoder.kv_heads, decoder.head_dim, torch.bfloat16)
    kinds: tuple[CacheKind, ...] = ("dynamic", "static")
    for kind in kinds:
        reserved = talker_bytes(config.talker, prompt, new, kind, torch.bfloat16)
        estimated = peak_bytes(each, decoder.layers, prompt + new, kind, 1)
        measured = grown_bytes(decoder, prompt, new, kind)
        print(
            f"  {kind}: {reserved / MB:.0f} MB reserved in all; keys and values {estimated / MB:.0f} MB estimated, "
            f"{measured / MB:.0f} MB measured, ratio {estimated / measured:.2f}"
        )


def grown_bytes(decoder: DecoderConfig, prompt: int, new: int, kind: CacheKind) -> int:
    """The most bytes that a cache takes while a prompt and then one position after another are added."""
    shape = (1, decoder.kv_heads, 1, decoder.head_dim)
    first = torch.zeros(shape, dtype=torch.bfloat16).expand(-1, -1, prompt, -1)
    one = first[:, :, :1]
    with torch.no_grad(), LiveBytes() as live:
        cache = new_cache(kind, decoder.layers)
        for added in (first, *[one] * new):
            for layer in range(decoder.layers):
                cache.append(layer, added, added)
    return live.peak_bytes


def load(folder: Path) -> None:
    """In a process of its own."""
    config, checkpoint = read_config(folder), Checkpoint(folder)

    def loaded() -> nn.Module:
        talker = empty_talker(config)
        checkpoint.fill(talker, "talker.", lambda name: name, checkpoint.dtype("talker."))
        lay_out_in_blocks(talker.code_predictor.model.layers, lambda weight: give_back_pages([weight]))
        pack(talker, lambda weight: give_back_pages([weight]))
        return talker

    report_peaks(folder / "model.safetensors", loaded)


if __name__ == "__main__":
    main()
