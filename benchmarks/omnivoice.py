"""OmniVoice's network at its real size, with random weights: speed beside upstream, and memory.

    python -m benchmarks.omnivoice speed [--dtype float32] [--frames 100] [--reference 125] [--steps 2] [--rounds 3]
    python -m benchmarks.omnivoice memory [--dtype float32]

speed: CPU seconds a step, with guidance, ours and upstream's taking turns in one process, so that a busy machine slows
both; medians over the rounds after a warm-up, and whether the codes are equal; with --profile where our time goes.
Needs omnivoice 0.2.1; run it in an environment that has it. memory: the least working set, the estimate against what is
measured, and the resident memory while a model is loaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.loading import report_peaks
from mizuoto_runtime.engines.omnivoice.config import OmniVoiceConfig, read_config
from mizuoto_runtime.engines.omnivoice.estimates import unmasking_bytes
from mizuoto_runtime.engines.omnivoice.network import Network
from mizuoto_runtime.engines.omnivoice.unmask import Prompt, Unmasker, Unmasking
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.nn.linear import pack
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.weights.checkpoint import Checkpoint
from mizuoto_runtime.weights.pages import give_back_pages
from tests.memory.live_bytes import LiveBytes

MB = 1_000_000
CONFIG: dict[str, Any] = {
    "model_type": "omnivoice",
    "audio_vocab_size": 1025,
    "audio_mask_id": 1024,
    "num_audio_codebook": 8,
    "llm_config": {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_676,
        "rope_theta": 1_000_000,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 40_960,
    },
}
TEXT_IDS = 30
REFERENCE_IDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "load"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--reference", type=int, default=125, help="frames of the reference; 0: none")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="show where our time goes")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.what == "speed":
        prompt = some_prompt(options.frames, options.reference)
        speed(getattr(torch, options.dtype), prompt, options.steps, options.rounds, profiled=options.profile)
    elif options.what == "memory":
        memory(getattr(torch, options.dtype), some_prompt(options.frames, options.reference))
    else:
        load(options.folder)


def some_prompt(frames: int, reference: int) -> Prompt:
    rng = generator(3)
    ids = TEXT_IDS + (REFERENCE_IDS if reference else 0)
    codes = torch.randint(0, 1024, (8, reference), generator=rng) if reference else None
    return Prompt(tuple(torch.randint(0, 150_000, (ids,), generator=rng).tolist()), codes, frames)


def configured() -> OmniVoiceConfig:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        return read_config(Path(folder))


def empty_network(config: OmniVoiceConfig) -> Network:
    with torch.device("meta"):
        return Network(config).eval().requires_grad_(False)


def random_weights(network: Network, dtype: torch.dtype) -> dict[str, Tensor]:
    """By name, small; those of norms are ones."""
    rng = generator(0)
    weights = {}
    for name, shell in network.state_dict().items():
        weight = torch.ones(shell.shape, dtype=dtype)
        weights[name] = weight if "norm" in name else weight.normal_(0, 0.03, generator=rng)
    return weights


def take_turns(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of all threads by way, one value a round, after a round that doesn't count."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            began = time.process_time()
            way()
            if number:
                seconds[name].append(time.process_time() - began)
    return seconds


def show(what: str, seconds: Mapping[str, list[float]], share: float = 1.0) -> None:
    for name, values in seconds.items():
        print(f"  {name:8} {statistics.median(values) * share:7.3f} CPU s {what} (best {min(values) * share:.3f})")
    ratios = [ours / theirs for ours, theirs in zip(seconds["ours"], seconds["upstream"], strict=True)]
    print(f"  ratio    {statistics.median(ratios):7.3f}")


def speed(dtype: torch.dtype, prompt: Prompt, steps: int, rounds: int, *, profiled: bool) -> None:
    network = empty_network(configured())
    weights = random_weights(network, dtype)
    network.load_state_dict(weights, assign=True)
    theirs = upstream(weights)
    pack(network, many_rows=[network])
    codes: dict[str, Tensor] = {}

    def ours() -> None:
        codes["ours"] = Unmasker(network, [prompt], Unmasking(num_step=steps), generator(1)).run("cpu")[0]

    def other() -> None:
        codes["upstream"] = run_upstream(theirs, prompt, steps)

    reference = 0 if prompt.reference is None else prompt.reference.shape[1]
    print(
        f"{dtype}, {torch.get_num_threads()} threads, {prompt.frames} frames, {reference} of a reference, "
        f"{len(prompt.ids)} of text, {steps} steps, {rounds} rounds"
    )
    with torch.inference_mode():
        show("a step", take_turns({"upstream": other, "ours": ours}, rounds), 1 / steps)
    print(f"  codes equal: {(codes['ours'] == codes['upstream']).float().mean():.4f}")
    if profiled:
        profile(ours)


def profile(run: Callable[[], None]) -> None:
    """Where our time goes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        run()
    print(profiled.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))


def upstream(weights: dict[str, Tensor]) -> Any:
    """Upstream's model with the same weights."""
    from omnivoice.models.omnivoice import OmniVoice, OmniVoiceConfig

    with torch.device("meta"):
        model = OmniVoice(OmniVoiceConfig(**json.loads(json.dumps(CONFIG))))
    model.load_state_dict(weights, assign=True, strict=False)
    model.codebook_layer_offsets = torch.arange(8) * 1025
    model.llm.rotary_emb = type(model.llm.rotary_emb)(model.llm.config)
    return model.eval()


def run_upstream(model: Any, prompt: Prompt, steps: int) -> Tensor:
    """Upstream's loop, given the prompt's ids instead of a text."""
    from omnivoice.models.omnivoice import GenerationTask, OmniVoiceGenerationConfig

    def prepare(*_: Any) -> dict[str, Tensor]:
        text = torch.tensor(prompt.ids).repeat(8, 1)
        parts = [text, *([] if prompt.reference is None else [prompt.reference]), torch.full((8, prompt.frames), 1024)]
        ids = torch.cat(parts, dim=1)[None]
        return {"input_ids": ids, "audio_mask": torch.arange(ids.shape[2])[None] >= len(prompt.ids)}

    model._prepare_inference_inputs = prepare
    nothing: list[Any] = [None]
    task = GenerationTask(1, [""], [prompt.frames], nothing, nothing, nothing, nothing, nothing)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        codes: Tensor = model._generate_iterative(task, OmniVoiceGenerationConfig(num_step=steps))[0]
    return codes


def memory(dtype: torch.dtype, prompt: Prompt) -> None:
    config = configured()
    network = empty_network(config).to(dtype)
    handle = ModelHandle("model", network, "oneshot")
    for embedding in (network.llm.embed_tokens, network.audio_embeddings):
        handle.mark(embedding, "gather")
    print(f"{dtype}: model {handle.size_bytes / MB:.0f} MB, least {handle.minimum_bytes(1) / MB:.0f} MB")
    weights = random_weights(network, dtype)
    measure(config, network, weights, prompt, dtype)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        save_file(weights, folder / "model.safetensors")
        del weights, network
        subprocess.run([sys.executable, "-m", "benchmarks.omnivoice", "load", "--folder", name], check=True)


def measure(
    config: OmniVoiceConfig, network: Network, weights: dict[str, Tensor], prompt: Prompt, dtype: torch.dtype
) -> None:
    """The estimate of one step against what its tensors take."""
    network.load_state_dict(weights, assign=True)
    how = Unmasking(num_step=1)
    estimated = unmasking_bytes(config, prompt, how, dtype, torch.device("cpu"))
    with LiveBytes() as live:
        Unmasker(network, [prompt], how, generator(1)).run("cpu")
    print(f"  working memory: {estimated / MB:.0f} MB estimated, {live.peak_bytes / MB:.0f} MB measured")


def load(folder: Path) -> None:
    """In a process of its own."""

    def loaded() -> nn.Module:
        network = empty_network(read_config(folder))
        checkpoint = Checkpoint(folder)
        checkpoint.fill(network, "", lambda name: name, checkpoint.dtype("llm."))
        pack(network, lambda weight: give_back_pages([weight]), many_rows=[network])
        return network

    report_peaks(folder / "model.safetensors", loaded)


if __name__ == "__main__":
    main()
