"""VoxCPM at its real sizes, with random weights made on the fly: speed beside upstream, and memory.

    python -m benchmarks.voxcpm speed [--model 0.5B] [--dtype float32] [--steps 6] [--rounds 3] [--threads 2]
    python -m benchmarks.voxcpm memory [--model 2]

speed: seconds a step, the prompt and the VAE included, ours and upstream's taking turns, so that a busy machine slows
both; medians over the rounds after a warm-up, the largest difference, and what takes the time. Needs voxcpm 2.0.3; run
it in an environment that has both. memory: the least working set in bfloat16, what is reserved for a request, and the
resident memory while the model's file is loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks import voxcpm_vae
from benchmarks.loading import report_peaks
from benchmarks.timing import median, median_of, take_turns
from mizuoto_runtime.engines.voxcpm.config import VoxCpmConfig, read_config
from mizuoto_runtime.engines.voxcpm.estimates import model_bytes
from mizuoto_runtime.engines.voxcpm.generate import Sampling, Writer
from mizuoto_runtime.engines.voxcpm.network import VoxCpm
from mizuoto_runtime.engines.voxcpm.prompt import Prompt
from mizuoto_runtime.engines.voxcpm.vae_decoder import VaeDecoder
from mizuoto_runtime.engines.voxcpm.vae_weights import load_vae
from mizuoto_runtime.engines.voxcpm.weights import DIT, PICKLE, SAFETENSORS, load_model
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.nn.linear import lay_out_in_blocks, pack
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.weights.pages import give_back_pages

MB = 1_000_000
CPU = torch.device("cpu")
FACTORS = [1.0 + index / 16 for index in range(64)]
LM = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "max_position_embeddings": 32_768,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000,
    "rope_scaling": {
        "type": "longrope",
        "long_factor": FACTORS[:32],
        "short_factor": FACTORS[:32],
        "original_max_position_embeddings": 32_768,
    },
    "vocab_size": 73_448,
    "use_mup": False,
    "scale_emb": 12,
    "dim_model_base": 256,
    "scale_depth": 1.4,
}
LOCAL = {"hidden_dim": 1024, "ffn_dim": 4096, "num_heads": 16}
CFM: dict[str, Any] = {"cfm_config": {}}
WIDE = {"long_factor": FACTORS, "short_factor": FACTORS}
MODELS: dict[str, dict[str, Any]] = {
    "0.5B": {
        "architecture": "voxcpm",
        "lm_config": LM,
        "patch_size": 2,
        "residual_lm_num_layers": 6,
        "encoder_config": LOCAL | {"num_layers": 4},
        "dit_config": LOCAL | CFM | {"num_layers": 4},
        "max_length": 4096,
    },
    "1.5": {
        "architecture": "voxcpm",
        "lm_config": LM,
        "patch_size": 4,
        "residual_lm_num_layers": 8,
        "encoder_config": LOCAL | {"num_layers": 8},
        "dit_config": LOCAL | CFM | {"num_layers": 8},
        "max_length": 4096,
    },
    "2": {
        "architecture": "voxcpm2",
        "lm_config": LM
        | {
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 28,
            "kv_channels": 128,
            "rope_scaling": LM["rope_scaling"] | WIDE,  # type: ignore[operator]
        },
        "patch_size": 4,
        "residual_lm_num_layers": 8,
        "residual_lm_no_rope": True,
        "encoder_config": LOCAL | {"num_layers": 12, "kv_channels": 128},
        "dit_config": LOCAL | CFM | {"num_layers": 12, "kv_channels": 128},
        "max_length": 8192,
    },
}
TEXT = tuple(range(1000, 1040))
TOKENS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "load"))
    parser.add_argument("--model", choices=tuple(MODELS), default="0.5B")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.inference_mode(options.what == "speed"):
        if options.what == "speed":
            speed(options.model, getattr(torch, options.dtype), options.steps, options.rounds)
        elif options.what == "memory":
            memory(options.model)
        else:
            load(options.folder)


def config_json(model: str, dtype: torch.dtype) -> dict[str, Any]:
    name = str(dtype).removeprefix("torch.")
    _, vae = voxcpm_vae.MODELS[model]
    return MODELS[model] | {"feat_dim": 64, "audio_vae_config": vae, "device": "cpu", "dtype": name}


def configured(model: str, dtype: torch.dtype) -> VoxCpmConfig:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config_json(model, dtype)), encoding="utf-8")
        return read_config(Path(folder))


def empty_model(config: VoxCpmConfig) -> VoxCpm:
    with torch.device("meta"):
        return VoxCpm(config).eval().requires_grad_(False)


def random_weights(model: VoxCpm, dtype: torch.dtype) -> dict[str, Tensor]:
    """By name, small; those of norms are ones."""
    rng = generator(0)
    weights = {}
    for name, shell in model.state_dict().items():
        weight = torch.ones(shell.shape, dtype=dtype)
        weights[name] = weight if "norm" in name else weight.normal_(0, 0.02, generator=rng)
    return weights


def upstreams_name(name: str) -> str:
    return name.replace("feat_decoder.", DIT, 1)


def speed(name: str, dtype: torch.dtype, steps: int, rounds: int) -> None:
    config = configured(name, dtype)
    with tempfile.TemporaryDirectory() as folder:
        voxcpm_vae.write_checkpoint(Path(folder), config.vae)
        decoder, _ = load_vae(Path(folder), config.vae, encoding=False)
        their_vae = voxcpm_vae.upstream(name, Path(folder))
    model = empty_model(config)
    weights = random_weights(model, dtype)
    model.load_state_dict(weights, assign=True)
    theirs = upstream(name, dtype, weights, their_vae)
    if dtype == torch.bfloat16:
        lay_out_in_blocks(model.base_lm.layers)
        lay_out_in_blocks(model.residual_lm.layers)
    pack(model, many_rows=model.many_rows())
    made: dict[str, tuple[Tensor, Tensor]] = {}

    def ours() -> None:
        made["ours"] = run_ours(model, decoder, steps)

    def others() -> None:
        made["upstream"] = run_upstream(theirs, steps)

    seconds = take_turns({"upstream": others, "ours": ours}, rounds, warm_up=1)
    ratio = median_of(seconds, lambda each: each["ours"] / each["upstream"])
    print(f"{name}, {dtype}, {torch.get_num_threads()} threads; {steps} steps, prompt and VAE included")
    for way, values in seconds.items():
        print(f"  {way:8} {median(values) / steps:6.3f} s a step (best {min(values) / steps:.3f})")
    latents = float((made["ours"][0] - made["upstream"][0]).abs().max())
    wave = float((made["ours"][1] - made["upstream"][1]).abs().max())
    print(f"  ratio    {ratio:6.2f}; largest difference of latents {latents:.1e}, of samples {wave:.1e}")
    shares(model, decoder, steps)


def run_ours(model: VoxCpm, decoder: VaeDecoder, steps: int) -> tuple[Tensor, Tensor]:
    """(frames, latent) and (samples)."""
    writer = Writer(model, Prompt((*TEXT, 101), len(TEXT)), Sampling(min_len=steps), steps, generator(1), CPU)
    while not writer.finished:
        writer.patch()
    latents = writer.latents().flatten(0, 1)
    return latents, decoder.decode(latents)


def upstream(name: str, dtype: torch.dtype, weights: dict[str, Tensor], vae: nn.Module) -> Any:
    """Upstream's model with the same weights, and its rotary tables made anew, which the meta device has none of."""
    from voxcpm.model.voxcpm import VoxCPMConfig as Config1
    from voxcpm.model.voxcpm import VoxCPMModel
    from voxcpm.model.voxcpm2 import VoxCPM2Model
    from voxcpm.model.voxcpm2 import VoxCPMConfig as Config2

    second = name == "2"
    parsed = (Config2 if second else Config1).model_validate(config_json(name, dtype))
    with torch.device("meta"):
        model = (VoxCPM2Model if second else VoxCPMModel)(parsed, NoTokenizer(), vae, device="cpu")
    named = {upstreams_name(key): weight for key, weight in weights.items()}
    missing, unexpected = model.load_state_dict(named, strict=False, assign=True)
    assert not unexpected and all(key.startswith("audio_vae.") for key in missing)
    for part in model.modules():
        rope = getattr(part, "rope_emb", None)
        if rope is not None:
            part.rope_emb = type(rope)(rope.config).to(dtype)
    return model.eval()


class NoTokenizer:
    vocab: dict[str, int] = {}  # noqa: RUF012


def run_upstream(model: Any, steps: int) -> tuple[Tensor, Tensor]:
    text = torch.tensor([[*TEXT, 101]])
    length = text.shape[1]
    feat = torch.zeros(1, length, model.patch_size, model.feat_dim, dtype=model._dtype())
    ones, zeros = torch.ones(1, length, dtype=torch.int32), torch.zeros(1, length, dtype=torch.int32)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        latents = next(model._inference(text, ones, feat, zeros, min_len=steps, max_len=steps, cfg_value=2.0))[0]
    latents = latents.float()
    return latents[0].T, model.audio_vae.decode(latents)[0, 0]


def shares(model: VoxCpm, decoder: VaeDecoder, steps: int) -> None:
    """Where ours spends its time: seconds a step of the parts, which are timed from outside."""
    parts: dict[str, nn.Module] = {
        "local DiT": model.feat_decoder,
        "local encoder": model.feat_encoder,
        "language model": model.base_lm,
        "residual model": model.residual_lm,
    }
    spent = dict.fromkeys(parts, 0.0)
    hooks = [hook for name, part in parts.items() for hook in timed(part, name, spent)]
    started = time.perf_counter()
    run_ours(model, decoder, steps)
    whole = time.perf_counter() - started
    for hook in hooks:
        hook.remove()
    spent["VAE and the rest"] = whole - sum(spent.values())
    print("  " + ", ".join(f"{name} {took / steps:.3f} s" for name, took in spent.items()))


def timed(part: nn.Module, name: str, spent: dict[str, float]) -> list[Any]:
    """Hooks that add the seconds of each of its calls."""
    began: list[float] = []

    def end(*_: Any) -> None:
        spent[name] += time.perf_counter() - began.pop()

    return [
        part.register_forward_pre_hook(lambda *_: began.append(time.perf_counter())),
        part.register_forward_hook(end),
    ]


def memory(name: str) -> None:
    config = configured(name, torch.bfloat16)
    least(name, config)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "config.json").write_text(json.dumps(config_json(name, torch.bfloat16)), encoding="utf-8")
        weights = random_weights(empty_model(config), torch.bfloat16)
        named = {upstreams_name(key): weight for key, weight in weights.items()}
        if name == "0.5B":
            torch.save({"state_dict": named}, folder / PICKLE)
        else:
            save_file(named, folder / SAFETENSORS)
        del weights, named
        subprocess.run([sys.executable, "-m", "benchmarks.voxcpm", "load", "--folder", path], check=True)


def least(name: str, config: VoxCpmConfig) -> None:
    """The least working set, from shapes alone, and what is reserved beside it for a text of some tokens."""
    half = empty_model(config).to(torch.bfloat16)
    handle = ModelHandle("model", half, "sequence")
    handle.mark(half.base_lm.embed_tokens, "gather")
    handle.mark(half.feat_encoder, "hot")
    handle.mark(half.feat_decoder, "hot")
    cpu = torch.device("cpu")
    reserved = model_bytes(config, TOKENS + 1, 6 * TOKENS + 10, "dynamic", torch.bfloat16, cpu)
    print(
        f"{name}, bfloat16: model {handle.size_bytes / MB:.0f} MB, least {handle.minimum_bytes(1) / MB:.0f} MB; "
        f"{reserved / MB:.0f} MB reserved beside it for {TOKENS} tokens"
    )


def load(folder: Path) -> None:
    """In a process of its own."""
    config = read_config(folder)

    def loaded() -> nn.Module:
        model = load_model(folder, config, torch.bfloat16, blocks=True)
        pack(model, lambda weight: give_back_pages([weight]), many_rows=model.many_rows())
        return model

    report_peaks(next(path for path in (folder / SAFETENSORS, folder / PICKLE) if path.exists()), loaded)


if __name__ == "__main__":
    main()
