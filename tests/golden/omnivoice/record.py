"""Writes the golden data: tiny random checkpoints, run by upstream itself.

Run in an environment with omnivoice 0.2.1 (transformers 5.24, torch 2.13, CPU), from the repository's root:

    python -m tests.golden.omnivoice.record

`models.json` and the tokenizer describe the checkpoints (see `checkpoint.py`), `golden.json` the versions, the
tolerance and the cases, `golden.safetensors` what upstream gave: ids of the prompts, codes, and some waveforms.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from omnivoice.models.omnivoice import OmniVoice, OmniVoiceConfig
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import HiggsAudioV2TokenizerConfig, HiggsAudioV2TokenizerModel

from tests.golden.omnivoice.cases import (
    CASES,
    CODEC,
    MODELS,
    PREPROCESSOR,
    SPECIAL_TOKENS,
    TRAINING_TEXTS,
    WAVE_STRIDE,
)
from tests.golden.omnivoice.checkpoint import FOLDER, reference_sound, write_checkpoint

TOLERANCE = 3e-5
STEP = 2.0**-15
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    write_tokenizer()
    described = describe()
    (FOLDER / "models.json").write_text(json.dumps(described, separators=(",", ":")) + "\n", encoding="utf-8")
    arrays: dict[str, Tensor] = {}
    cases: list[dict[str, Any]] = []
    for name in dict.fromkeys(case["model"] for case in CASES):
        with tempfile.TemporaryDirectory() as folder:
            upstream = OmniVoice.from_pretrained(str(write_checkpoint(Path(folder), name, described=described)))
            for number, case in enumerate(CASES):
                if case["model"] == name:
                    cases.append({"number": number, **case, **record(upstream, case, number, arrays)})
                    print(number, cases[-1]["frames"])
    versions = {name: metadata.version(name) for name in ("omnivoice", "transformers", "torch", "torchaudio", "pydub")}
    cases.sort(key=lambda case: case["number"])
    golden = {"versions": versions, "tolerance": TOLERANCE, "step": STEP, "cases": cases}
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    (FOLDER / "golden.json").write_text(text + "\n", encoding="utf-8")
    save_file(arrays, FOLDER / "golden.safetensors")
    print(f"{sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()):,} bytes in all")


def write_tokenizer() -> None:
    """Train a tiny tokenizer of Qwen's kind and write its files."""
    from tokenizers import AddedToken, Regex

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator(TRAINING_TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS])
    tokenizer.save(str(FOLDER / "tokenizer.json"), pretty=False)
    config = {
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def describe() -> dict[str, Any]:
    """All configurations, with the names and shapes of the weights that upstream's classes have for them."""
    described: dict[str, Any] = {"codec": describe_codec(), "models": {}}
    for name, model in MODELS.items():
        upstream = OmniVoice(OmniVoiceConfig(**json.loads(json.dumps(model["config"]))))
        shapes = {key: shape for key, shape in shapes_of(upstream).items() if key != "codebook_layer_offsets"}
        described["models"][name] = {**model, "shapes": shapes}
    return described


def describe_codec() -> dict[str, Any]:
    codec = HiggsAudioV2TokenizerModel(HiggsAudioV2TokenizerConfig(**json.loads(json.dumps(CODEC))))
    return {
        "config": CODEC,
        "preprocessor_config": PREPROCESSOR,
        "seed": 7,
        "quiet": ["acoustic_decoder.conv2.weight", "acoustic_decoder.conv2.bias"],
        "shapes": shapes_of(codec),
    }


def shapes_of(module: torch.nn.Module) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in module.state_dict().items()}


def record(upstream: OmniVoice, case: dict[str, Any], number: int, arrays: dict[str, Tensor]) -> dict[str, Any]:
    """Run one case; returns how many frames each item's chunks have, and what the voices are.

    The seed is set after the voices were made, since the pack makes them in a phase of their own.
    """
    prompts: list[list[int]] = []
    made: list[list[Tensor]] = []
    inner, decode = upstream._prepare_inference_inputs, upstream._decode_and_post_process

    def prepare(*args: Any, **kwargs: Any) -> Any:
        prepared = inner(*args, **kwargs)
        text = ~prepared["audio_mask"][0]
        prompts.append(prepared["input_ids"][0, 0, text].tolist())
        return prepared

    def decoded(tokens: Any, *args: Any) -> Any:
        made.append(tokens if isinstance(tokens, list) else [tokens])
        return decode(tokens, *args)

    given, voices = arguments(upstream, case)
    upstream._prepare_inference_inputs, upstream._decode_and_post_process = prepare, decoded
    try:
        torch.manual_seed(number)
        waves = upstream.generate(**given, **case["options"])
    finally:
        upstream._prepare_inference_inputs, upstream._decode_and_post_process = inner, decode
    for item, (chunks, wave) in enumerate(zip(made, waves, strict=True)):
        for index, codes in enumerate(chunks):
            arrays[f"{number}.{item}.codes.{index}"] = codes.to(torch.int16).contiguous()
        if case.get("wave"):
            arrays[f"{number}.{item}.wave"] = torch.from_numpy(wave)[::WAVE_STRIDE].contiguous()
    for item, voice in enumerate(voices):
        arrays[f"{number}.{item}.reference"] = voice.ref_audio_tokens.to(torch.int16).contiguous()
    return {
        "prompts": prompts,
        "frames": [[codes.shape[1] for codes in chunks] for chunks in made],
        "lengths": [len(wave) for wave in waves],
        "voices": [{"text": voice.ref_text, "rms": voice.ref_rms} for voice in voices],
    }


def arguments(upstream: OmniVoice, case: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The case's inputs as upstream takes them, and its voices; sounds are made from their description."""
    given = dict(case["inputs"])
    sounds, texts = given.pop("ref_audio", None), given.pop("ref_text", None)
    if sounds is None:
        return given, []
    several = isinstance(sounds, list)
    voices = [
        upstream.create_voice_clone_prompt(
            (sound_of(sound), sound["rate_hz"]), text, case["options"].get("preprocess_prompt", True)
        )
        for sound, text in zip(sounds if several else [sounds], texts if several else [texts], strict=True)
    ]
    given["voice_clone_prompt"] = voices if several else voices[0]
    return given, voices


def sound_of(sound: dict[str, Any]) -> Tensor:
    described = {name: value for name, value in sound.items() if name != "rate_hz"}
    return reference_sound(**described)


if __name__ == "__main__":
    main()
