"""Writes the golden data: tiny random checkpoints of every generation, run by upstream itself.

Run in an environment with voxcpm 2.0.3 (transformers 5.24, torch 2.13, CPU), from the repository's root:

    python -m tests.golden.voxcpm.record

`models.json` and the tokenizer describe the checkpoints (see `checkpoint.py`), `golden.json` the versions, tolerances
and what upstream counted, `golden.safetensors` the latents and waveforms that it gave. Seeds are taken at which no
value that is rounded lies within MARGIN steps of a boundary, and no decision to stop within STOP_MARGIN. Recordings are
read with soundfile for the first generation too, whose torchaudio needs a decoder of its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

import soundfile
import torch
import torchaudio
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from voxcpm import VoxCPM
from voxcpm.model.voxcpm import AudioVAE, VoxCPMModel
from voxcpm.model.voxcpm import VoxCPMConfig as Config1
from voxcpm.model.voxcpm2 import AudioVAEV2, VoxCPM2Model
from voxcpm.model.voxcpm2 import VoxCPMConfig as Config2

from tests.golden.voxcpm.cases import (
    AUDIO_TOKENS,
    CASES,
    CONFIGS,
    FIRST_AUDIO_TOKEN,
    TEXTS,
    TRAINING_TEXTS,
    VOCAB,
)
from tests.golden.voxcpm.checkpoint import FOLDER, sound, write_checkpoint

TOLERANCES = {"latents": 5e-5, "wave": 2e-4}
MARGIN = 2e-4
STOP_MARGIN = 0.05
MOST_SEEDS = 30
SEEDS = {"v0.5": 1, "v1.5": 1, "v2": 1, "v2-rates": 1, "v2-varied": 1}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    torchaudio.load = read_sound
    write_tokenizer()
    described = {name: describe(name) for name in CONFIGS}
    (FOLDER / "models.json").write_text(json.dumps(described, separators=(",", ":")) + "\n", encoding="utf-8")
    arrays: dict[str, Tensor] = {}
    recorded: list[dict[str, Any]] = [{} for _ in CASES]
    ids = {}
    for name in CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            path = write_checkpoint(Path(folder) / name, name, described=described)
            upstream = VoxCPM(str(path), enable_denoiser=False, optimize=False, device="cpu")
            ids[name] = [upstream.tts_model.text_tokenizer(text) for text in TEXTS]
            for number, case in enumerate(CASES):
                if case["model"] == name:
                    recorded[number] = record(upstream, case, Path(folder), f"{number}.", arrays)
                    print(number, name, recorded[number]["seed"], recorded[number]["patches"])
    versions = {name: metadata.version(name) for name in ("voxcpm", "transformers", "torch")}
    golden = {"versions": versions, "tolerances": TOLERANCES, "cases": recorded, "texts": ids}
    (FOLDER / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")
    save_file(arrays, FOLDER / "golden.safetensors")


def read_sound(path: str) -> tuple[Tensor, int]:
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples.T).contiguous(), rate_hz


def describe(name: str) -> dict[str, Any]:
    """Names and shapes of all weights, the VAE's under `audio_vae.`, and the seed of their values."""
    config = CONFIGS[name] | {"device": "cpu"}
    second = config.get("architecture") == "voxcpm2"
    parsed = (Config2 if second else Config1).model_validate_json(json.dumps(config))
    vae = (AudioVAEV2 if second else AudioVAE)(parsed.audio_vae_config)
    model = (VoxCPM2Model if second else VoxCPMModel)(parsed, NoTokenizer(), vae, device="cpu")
    shapes = {key: list(tensor.shape) for key, tensor in model.state_dict().items()}
    return {"shapes": shapes, "seed": SEEDS[name]}


class NoTokenizer:
    vocab: dict[str, int] = {}  # noqa: RUF012


def write_tokenizer() -> None:
    """Train a tiny tokenizer of MiniCPM's kind, with the audio tokens at their own ids, and write its files."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    trained.train_from_iterator(TRAINING_TEXTS, trainers.BpeTrainer(vocab_size=320, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    vocab: dict[str, int] = {"<unk>": 0, "<s>": 1, "</s>": 2}
    others = iter([piece for piece in pieces if piece not in vocab] + [f"<0x{byte:02X}>" for byte in range(256)])
    for piece in others:
        if len(vocab) == FIRST_AUDIO_TOKEN:
            vocab |= {token: FIRST_AUDIO_TOKEN + index for index, token in enumerate(AUDIO_TOKENS)}
        vocab[piece] = len(vocab)
    assert len(vocab) <= VOCAB
    added = [
        {
            "id": vocab[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in ("<unk>", "<s>", "</s>", *AUDIO_TOKENS)
    ]
    whole = json.loads(Tokenizer(models.BPE()).to_str())
    whole["added_tokens"] = added
    whole["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    whole["decoder"] = json.loads(decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]).__getstate__())
    whole["model"] = model | {"vocab": vocab, "fuse_unk": True, "byte_fallback": True, "unk_token": "<unk>"}
    described = {
        "add_bos_token": True,
        "add_eos_token": False,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in added
        },
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "model_max_length": 1000000000000000019884624838656,
        "tokenizer_class": "LlamaTokenizerFast",
        "unk_token": "<unk>",
    }
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    for file, content in (
        ("tokenizer.json", whole),
        ("tokenizer_config.json", described),
        ("special_tokens_map.json", special),
    ):
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (FOLDER / file).write_text(text + "\n", encoding="utf-8")


def record(
    upstream: VoxCPM, case: dict[str, Any], folder: Path, prefix: str, arrays: dict[str, Tensor]
) -> dict[str, Any]:
    """Run one case with the first seed whose decisions are clear; returns what upstream counted."""
    given = dict(case)
    given.pop("model")
    control = given.pop("control", "").strip()
    text = given.pop("text")
    for key in ("prompt", "reference"):
        if key in given:
            described = given.pop(key)
            path = folder / f"{prefix}{key}.wav"
            soundfile.write(path, sound(**described).T.numpy(), described["rate_hz"], subtype="PCM_16")
            given[f"{key}_wav_path"] = str(path)
    given.setdefault("retry_badcase", False)
    for seed in count(1):
        torch.manual_seed(seed)
        with watched(upstream.tts_model, case.get("min_len", 2)) as seen:
            wave = upstream.generate(f"({control}){text}" if control else text, **given)
        if seen["margin"] >= MARGIN and seen["stop"] >= STOP_MARGIN:
            break
        assert seed < MOST_SEEDS, f"case {prefix}: its prompt is too close to a boundary, change it"
    for index, latents in enumerate(seen["encoded"]):
        arrays[f"{prefix}encoded{index}"] = latents.contiguous()
    arrays[f"{prefix}latents"] = seen["runs"][-1].contiguous()
    arrays[f"{prefix}wave"] = torch.from_numpy(wave).contiguous()
    ids, mask = seen["prompt"]
    return {
        "seed": seed,
        "ids": ids,
        "audio": mask,
        "patches": [int(run.shape[-1]) // upstream.tts_model.patch_size for run in seen["runs"]],
        "samples": len(wave),
        "rate_hz": upstream.tts_model.sample_rate,
        "draw": float(torch.rand(())),
        "rms": round(float(seen["runs"][-1].square().mean().sqrt()), 3),
    }


@contextmanager
def watched(model: Any, min_len: int) -> Iterator[dict[str, Any]]:
    """What a request makes of the prompt, its latents run by run, and how narrow its decisions were."""
    seen: dict[str, Any] = {"margin": 1.0, "stop": 1.0, "runs": [], "encoded": []}
    inner, encode = model._inference, model.audio_vae.encode
    scale = model.fsq_layer.scale

    def inference(text: Tensor, text_mask: Tensor, feat: Tensor, feat_mask: Tensor, **kwargs: Any) -> Any:
        seen["step"] = -1
        seen["prompt"] = text[0].tolist(), feat_mask[0].tolist()
        seen["mask"] = feat_mask[0].bool()
        for result in inner(text, text_mask, feat, feat_mask, **kwargs):
            seen["runs"].append(result[0][0].clone())
            yield result

    def encoding(*args: Any) -> Tensor:
        latents: Tensor = encode(*args)
        seen["encoded"].append(latents[0].clone())
        return latents

    def quantised(_module: Any, _inputs: Any, output: Tensor) -> None:
        used = output[0][seen["mask"]] if output.ndim == 3 else output[0]
        if used.numel():
            steps = torch.tanh(used) * scale
            seen["margin"] = min(seen["margin"], float((steps - steps.floor() - 0.5).abs().min()))

    def stopping(_module: Any, _inputs: Any, output: Tensor) -> None:
        seen["step"] += 1
        if seen["step"] > min_len:
            seen["stop"] = min(seen["stop"], float((output[..., 0] - output[..., 1]).abs().min()))

    hooks = [
        model.fsq_layer.in_proj.register_forward_hook(quantised),
        model.stop_head.register_forward_hook(stopping),
    ]
    model._inference, model.audio_vae.encode = inference, encoding
    try:
        yield seen
    finally:
        model._inference, model.audio_vae.encode = inner, encode
        for hook in hooks:
            hook.remove()


if __name__ == "__main__":
    main()
