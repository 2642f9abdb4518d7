"""Writes the golden data: tiny random checkpoints of every model type, run by upstream itself.

Run in an environment with qwen-tts 0.1.1 (transformers 4.57.3, torch 2.13, CPU), from the repository's root:

    python -m tests.golden.qwen3tts.record

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
from qwen_tts import Qwen3TTSModel
from qwen_tts.core.models import Qwen3TTSConfig, Qwen3TTSForConditionalGeneration
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from tests.golden.qwen3tts.cases import CASES, CODECS, MODELS, PREPROCESSOR, SPECIAL_TOKENS, TRAINING_TEXTS
from tests.golden.qwen3tts.checkpoint import reference_sound, write_checkpoint

FOLDER = Path(__file__).parent
TOLERANCE = 1e-4
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    first_special = write_tokenizer()
    described = describe(first_special)
    (FOLDER / "models.json").write_text(json.dumps(described, separators=(",", ":")) + "\n", encoding="utf-8")
    arrays: dict[str, Tensor] = {}
    cases: list[dict[str, Any]] = []
    for name in dict.fromkeys(case["model"] for case in CASES):
        with tempfile.TemporaryDirectory() as folder:
            path = write_checkpoint(Path(folder), name, described=described)
            upstream = Qwen3TTSModel.from_pretrained(str(path), dtype=torch.float32)
            for case in (case for case in CASES if case["model"] == name):
                number = len(cases)
                cases.append(case | record(upstream, case, f"{number}.", arrays))
                print(number, case["model"], case["method"], cases[-1]["frames"], cases[-1]["ends"])
    versions = {name: metadata.version(name) for name in ("qwen-tts", "transformers", "torch")}
    golden = {"versions": versions, "tolerance": TOLERANCE, "cases": cases}
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    (FOLDER / "golden.json").write_text(text + "\n", encoding="utf-8")
    save_file(arrays, FOLDER / "golden.safetensors")
    print(f"{sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()):,} bytes in all")


def write_tokenizer() -> int:
    """Train a tiny tokenizer of Qwen's kind and write its files; returns the id of its first special token."""
    tokenizer = Tokenizer(models.BPE())
    from tokenizers import Regex

    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator(TRAINING_TEXTS, trainer)
    tokenizer.model.save(str(FOLDER))
    count = tokenizer.get_vocab_size()
    added = {
        str(count + index): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": special,
        }
        for index, (token, special) in enumerate(SPECIAL_TOKENS)
    }
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "processor_class": "Qwen3TTSProcessor",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return count


def describe(first_special: int) -> dict[str, Any]:
    """All configurations, with the names and shapes of the weights that upstream's classes have for them."""
    ids = {token: first_special + index for index, (token, _) in enumerate(SPECIAL_TOKENS)}
    codecs = {name: describe_codec(config) for name, config in CODECS.items()}
    described: dict[str, Any] = {"codecs": codecs, "models": {}}
    for name, model in MODELS.items():
        config = model["config"] | {
            "im_start_token_id": ids["<|im_start|>"],
            "im_end_token_id": ids["<|im_end|>"],
            "tts_pad_token_id": ids["<tts_pad>"],
            "tts_bos_token_id": ids["<tts_text_bos>"],
            "tts_eos_token_id": ids["<tts_text_eod>"],
        }
        with torch.device("meta"):
            upstream = Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**json.loads(json.dumps(config))))
        described["models"][name] = {**model, "config": config, "shapes": shapes_of(upstream)}
    return described


def describe_codec(config: dict[str, Any]) -> dict[str, Any]:
    with torch.device("meta"):
        codec = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**json.loads(json.dumps(config))))
    last = f"decoder.decoder.{len(config['decoder_config']['upsample_rates']) + 2}.conv"
    return {
        "config": config,
        "preprocessor_config": PREPROCESSOR,
        "seed": 7,
        "quiet": [f"{last}.weight", f"{last}.bias"],
        "shapes": shapes_of(codec),
    }


def shapes_of(module: torch.nn.Module) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in module.state_dict().items()}


def record(upstream: Qwen3TTSModel, case: dict[str, Any], prefix: str, arrays: dict[str, Tensor]) -> dict[str, Any]:
    """Run one case; returns how many frames each row has, and how it ended."""
    calls: list[tuple[dict[str, Any], Any]] = []
    inner = upstream.model.generate

    def generate(**kwargs: Any) -> Any:
        torch.manual_seed(case.get("seed", 0))
        result = inner(**kwargs)
        calls.append((kwargs, result))
        return result

    upstream.model.generate = generate
    try:
        sounds, rate_hz = getattr(upstream, case["method"])(**arguments(case), **case["options"])
    finally:
        upstream.model.generate = inner
    assert rate_hz == 24_000
    kwargs, (codes, _) = calls[0]
    for row, (ids, frames) in enumerate(zip(kwargs["input_ids"], codes, strict=True)):
        arrays[f"{prefix}{row}.ids"] = ids[0].to(torch.int32)
        arrays[f"{prefix}{row}.codes"] = frames.T.to(torch.int16).contiguous()
        for kind in ("ref_ids", "instruct_ids"):
            if kwargs.get(kind) and kwargs[kind][row] is not None:
                arrays[f"{prefix}{row}.{kind}"] = kwargs[kind][row][0].to(torch.int32)
        if case.get("sound"):
            arrays[f"{prefix}{row}.samples"] = torch.from_numpy(sounds[row]).contiguous()
        clone = kwargs.get("voice_clone_prompt")
        if clone is not None and clone["ref_code"][row] is not None:
            arrays[f"{prefix}{row}.ref_codes"] = clone["ref_code"][row].T.to(torch.int16).contiguous()
        if clone is not None:
            arrays[f"{prefix}{row}.x_vector"] = clone["ref_spk_embedding"][row].clone()
    longest = case["options"]["max_new_tokens"] - 1
    counts = [len(frames) for frames in codes]
    return {"frames": counts, "ends": ["length" if count == longest else "end" for count in counts]}


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    """The case's inputs as upstream takes them; sounds are made from their description."""
    given = dict(case["inputs"])
    if "ref_audio" in given:
        given["ref_audio"] = [
            (reference_sound(sound["length"], sound["seed"]).numpy(), sound["rate_hz"]) for sound in given["ref_audio"]
        ]
    return given


if __name__ == "__main__":
    main()
