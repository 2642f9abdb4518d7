"""Writes the golden audio VAEs: tiny random ones in the official layout, run by upstream's own classes.

Run in an environment with `voxcpm==2.0.3` and torch 2.13, from the repository's root:

    python -m tests.golden.voxcpm.vae.record

It writes a folder for each VAE, with `config.json` and its weights as published and `cases.safetensors` (what upstream
makes of the signals in signals.py), and `vae.json` with versions, seed, tolerances, upstream's default sizes and the
digests of all names and shapes at the real sizes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from voxcpm.modules.audiovae import AudioVAE, AudioVAEConfig, AudioVAEConfigV2, AudioVAEV2

from tests.golden.voxcpm.vae.signals import exact_latents, exact_sound

FOLDER = Path(__file__).parent
SEED = 20_261_130
TOLERANCES = {"samples": 5e-5, "latents": 1e-5}
CLASSES = {"voxcpm": (AudioVAE, AudioVAEConfig), "voxcpm2": (AudioVAEV2, AudioVAEConfigV2)}
FIRST = {"encoder_rates": [2, 5, 8, 8], "decoder_rates": [8, 8, 5, 2], "sample_rate": 16_000}
ODD = {"encoder_rates": [2, 3, 6, 7, 7], "decoder_rates": [7, 7, 6, 3, 2], "sample_rate": 44_100}
SECOND = {"encoder_rates": [2, 5, 8, 8], "decoder_rates": [8, 6, 5, 2, 2, 2], "sample_rate": 16_000}
VAES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "first": ("voxcpm", "wrapped", {**FIRST, "encoder_dim": 2, "latent_dim": 6, "decoder_dim": 32}),
    "odd": ("voxcpm", "bare", {**ODD, "encoder_dim": 1, "latent_dim": 5, "decoder_dim": 32}),
    "second": ("voxcpm2", "safetensors", {**SECOND, "encoder_dim": 2, "latent_dim": 6, "decoder_dim": 64,
                                          "out_sample_rate": 48_000, "sr_bin_boundaries": [20_000, 30_000, 40_000]}),
    "dense": ("voxcpm", "wrapped", {"encoder_rates": [3, 2, 5], "decoder_rates": [5, 3, 2], "sample_rate": 8000,
                                    "encoder_dim": 3, "latent_dim": 4, "decoder_dim": 24, "depthwise": False}),
    "added": ("voxcpm2", "safetensors", {"encoder_rates": [3], "decoder_rates": [4, 1, 3], "sample_rate": 8000,
                                         "encoder_dim": 5, "latent_dim": 4, "decoder_dim": 25, "depthwise": False,
                                         "out_sample_rate": 24_000, "sr_bin_boundaries": [24_000],
                                         "cond_type": "add"}),
    "plain": ("voxcpm2", "bare", {"encoder_rates": [5, 1], "decoder_rates": [5], "sample_rate": 8000,
                                  "encoder_dim": 5, "latent_dim": 4, "decoder_dim": 12, "out_sample_rate": 8000,
                                  "sr_bin_boundaries": None}),
}  # fmt: skip
REAL = {
    "0.5B": ("voxcpm", {**FIRST, "encoder_dim": 128, "latent_dim": 64, "decoder_dim": 1536}),
    "1.5": ("voxcpm", {**ODD, "encoder_dim": 64, "latent_dim": 64, "decoder_dim": 2048}),
    "2": ("voxcpm2", {**SECOND, "encoder_dim": 128, "latent_dim": 64, "decoder_dim": 2048}),
}
SPREAD = 0.7
DECODED_FRAMES = (1, 2, 21)
ENCODED_FRAMES = (1, 2, 21)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with torch.no_grad():
        for name in VAES:
            record(name)
        digests = {name: digest(architecture, sizes) for name, (architecture, sizes) in REAL.items()}
    golden = {
        "versions": {name: metadata.version(name) for name in ("voxcpm", "torch")},
        "seed": SEED,
        "tolerances": TOLERANCES,
        "vaes": {name: architecture for name, (architecture, _, _) in VAES.items()},
        "defaults": {name: config().model_dump() for name, (_, config) in CLASSES.items()},
        "real": {name: {"architecture": REAL[name][0], "sizes": REAL[name][1], "digest": digests[name]}
                 for name in REAL},
    }  # fmt: skip
    (FOLDER / "vae.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(path.stat().st_size for path in FOLDER.rglob('*') if path.is_file()):,} bytes in all")


def record(name: str) -> None:
    architecture, form, sizes = VAES[name]
    kind, config = CLASSES[architecture]
    model = kind(config(**sizes)).eval()
    randomise(model, torch.Generator().manual_seed(SEED))
    set_loudness(model)
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    save(folder, form, {key: weight.clone() for key, weight in model.state_dict().items()})
    content = {"architecture": architecture, "audio_vae_config": sizes}
    (folder / "config.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    cases = dict([*decoded(model), *encoded(model)])
    save_file(cases, folder / "cases.safetensors")


def save(folder: Path, form: str, weights: dict[str, Tensor]) -> None:
    if form == "safetensors":
        save_file(weights, folder / "audiovae.safetensors")
    else:
        torch.save({"state_dict": weights} if form == "wrapped" else weights, folder / "audiovae.pth")


def randomise(model: nn.Module, generator: torch.Generator) -> None:
    """No weight is neutral; values stay near 1 from layer to layer, and some snakes are nearly or quite straight."""
    transposed = {name for name, part in model.named_modules() if isinstance(part, nn.ConvTranspose1d)}
    for key, weight in model.state_dict().items():
        draw = torch.randn(weight.shape, generator=generator)
        layer, _, kind = key.rpartition(".")
        if kind == "alpha":
            weight.copy_((0.9 + 0.3 * draw).clamp(min=0.2))
            weight[0, :3, 0] = torch.tensor([-0.8, 0.0, 3e-8])[: weight.shape[1]]
        elif kind == "weight_g":
            rate = model.get_submodule(layer).stride[0] if layer in transposed else 2
            weight.copy_((1 + 0.2 * draw) * (rate / 2) ** 0.5 * (0.4 if layer.endswith("block.3") else 1))
        elif "scale_embed" in key:
            weight.copy_(1 + 0.2 * draw)
        elif kind != "sr_bin_boundaries":
            weight.copy_(draw if kind == "weight_v" else 0.2 * draw)


def set_loudness(model: Any) -> None:
    """Scale the last convolution so that samples come near full scale, but most stay well below."""
    last, heard = model.decoder.model[-2], []
    hook = last.register_forward_hook(lambda module, given, result: heard.append(result))
    model.decode(exact_latents(40, model.latent_dim).T[None])
    hook.remove()
    factor = SPREAD / heard[0].std()
    last.weight_g.mul_(factor)
    last.bias.mul_(factor)


def decoded(model: Any) -> Iterator[tuple[str, Tensor]]:
    for frames in DECODED_FRAMES:
        latents = exact_latents(frames, model.latent_dim)
        yield f"decode.{frames}", model.decode(latents.T[None])[0, 0].contiguous()


def encoded(model: Any) -> Iterator[tuple[str, Tensor]]:
    hop = model.chunk_size
    for frames in ENCODED_FRAMES:
        for length in sorted({frames * hop - hop + 1, frames * hop - 1, frames * hop} - {0}):
            samples = exact_sound(length)
            yield f"encode.{length}", model.encode(samples[None], model.sample_rate)[0].T.contiguous()


def digest(architecture: str, sizes: dict[str, Any]) -> str:
    """Of the names and shapes of all weights; the unused variance isn't among them."""
    kind, config = CLASSES[architecture]
    with torch.device("meta"):
        weights = kind(config(**sizes)).state_dict()
    shapes = {name: list(weight.shape) for name, weight in weights.items() if "fc_logvar" not in name}
    return hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    main()
