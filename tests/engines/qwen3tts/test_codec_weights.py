"""Loading the codec and the speaker encoder: strictly, from one file or shards, mapped; what is wrong is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mizuoto_runtime.engines.qwen3tts.codec_weights import load_codec, load_speaker_encoder
from mizuoto_runtime.errors import ModelFileError, ModelNotFound

GOLDEN = Path(__file__).parents[2] / "golden" / "qwen3tts"
WEIGHTS = "model.safetensors"
FIRST = "decoder.pre_conv.conv.weight"
Edit = Callable[[dict[str, Tensor]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "codec_plain", tmp_path / "speech_tokenizer"))


def edit(folder: Path, change: Edit) -> Path:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    (folder / WEIGHTS).unlink()
    save_file(weights, folder / WEIGHTS)
    return folder


def edit_config(folder: Path, change: Callable[[Any], object]) -> Path:
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(content)
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def split(folder: Path) -> Path:
    """Into two shards, with an index."""
    weights = load_file(folder / WEIGHTS)
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: weights[name] for name in held}, folder / shard)
    places = {name: shard for shard, held in shards.items() for name in held}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    (folder / WEIGHTS).unlink()
    return folder


def same(first: nn.Module, second: nn.Module) -> bool:
    ours, theirs = first.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_every_weight_of_the_file_is_used_once_or_known_to_be_unused(folder: Path) -> None:
    stored = load_file(folder / WEIGHTS)
    decoder, encoder = load_codec(folder, torch.float32)
    assert encoder is not None
    used = [*decoder.state_dict().values(), *encoder.state_dict().values()]
    for name, tensor in stored.items():
        found = sum(tensor.shape == other.shape and torch.equal(tensor, other) for other in used)
        extra = "acoustic" in name and name.split(".layers.")[-1].split(".")[0] in ("4", "5")
        unused = name.endswith((".initialized", "input_proj.weight", "output_proj.weight")) or extra
        assert found >= 1 or unused, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_ready_for_placement(folder: Path, dtype: torch.dtype) -> None:
    modules = [*load_codec(folder, dtype), load_speaker_encoder(GOLDEN / "speaker", dtype)]
    for module in modules:
        assert module is not None and not module.training
        for name, weight in module.named_parameters():
            assert (weight.dtype, weight.device.type, weight.requires_grad) == (dtype, "cpu", False), name
            assert not weight.is_inference() and weight.is_contiguous(), name
        assert not list(module.buffers()), "what isn't stored is computed anew"


def test_half_precision_is_that_of_the_whole_model_converted(folder: Path) -> None:
    decoder, _ = load_codec(folder, torch.bfloat16)
    other, _ = load_codec(folder, torch.float32)
    assert same(decoder, other.bfloat16())
    codes = torch.arange(40).repeat(5, 1)
    samples = decoder.decode(codes)
    assert samples.dtype == torch.float32
    exact = load_codec(folder, torch.float32)[0].decode(codes)
    error = (samples - exact).abs().mean() / exact.abs().mean()
    assert 0 < error < 0.25, "upstream's own is 0.14 with these weights"


def test_loading_touches_no_random_numbers(folder: Path) -> None:
    before = torch.get_rng_state()
    load_codec(folder, torch.float32)
    assert torch.equal(before, torch.get_rng_state())


def test_the_encoder_is_left_out_if_nothing_is_to_be_encoded(folder: Path) -> None:
    decoder, encoder = load_codec(folder, torch.float32, encoding=False)
    assert encoder is None
    assert same(decoder, load_codec(folder, torch.float32)[0])


def test_shards_are_the_same(folder: Path) -> None:
    whole = load_codec(folder, torch.float32)
    parts = load_codec(split(folder), torch.float32)
    assert all(same(*pair) for pair in zip(whole, parts, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop(FIRST), r"1 weights under 'decoder\.' are missing: 'pre_conv\.weight'"),
        (lambda weights: weights.update({"decoder.other.weight": torch.zeros(1)}), r"unexpected.*decoder\.other"),
        (lambda weights: weights.update({"talker.weight": torch.zeros(1)}), r"unexpected.*'talker\.weight'"),
        (
            lambda weights: weights.update({FIRST: weights[FIRST][:5].clone()}),
            r"'decoder\.pre_conv\.conv\.weight' is \[5, 16, 3\].*it is \[24, 16, 3\]",
        ),
        (lambda weights: weights.update({FIRST: weights[FIRST].int()}), r"torch\.int32"),
        (
            lambda weights: weights.update({"decoder.pre_conv.weight": weights[FIRST].clone()}),
            r"'decoder\.pre_conv\.conv\.weight' and 'decoder\.pre_conv\.weight' are the same weight",
        ),
        (
            lambda weights: weights.pop("encoder.encoder.layers.3.conv.weight"),
            r"under 'encoder\.' are missing: 'first\.parts\.1\.conv\.weight'",
        ),
    ],
)
def test_wrong_weights_are_named(folder: Path, change: Edit, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_codec(edit(folder, change), torch.float32)


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, 0.999])
def test_a_truncated_file_is_refused(folder: Path, kept: float) -> None:
    path = folder / WEIGHTS
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept < 1 else int(kept)])
    with pytest.raises(ModelFileError, match=r"model\.safetensors: truncated, or no safetensors file"):
        load_codec(folder, torch.float32)


def test_shards_that_do_not_hold_what_they_should_are_refused(folder: Path) -> None:
    split(folder)
    first = json.loads((folder / f"{WEIGHTS}.index.json").read_text(encoding="utf-8"))
    index = folder / f"{WEIGHTS}.index.json"
    name = next(key for key in first["weight_map"] if key.startswith("decoder."))
    for shard in ("c.safetensors", "../speech_tokenizer/a.safetensors", 3):
        index.write_text(json.dumps({"weight_map": {**first["weight_map"], name: shard}}), encoding="utf-8")
        with pytest.raises(ModelFileError, match="isn't beside it"):
            load_codec(folder, torch.float32)
    swapped = {"a.safetensors": "b.safetensors", "b.safetensors": "a.safetensors"}
    places = {**first["weight_map"], name: swapped[first["weight_map"][name]]}
    index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    with pytest.raises(ModelFileError, match=f"lacks '{name}'"):
        load_codec(folder, torch.float32)


def test_what_is_not_there_is_said(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelNotFound, match="has neither"):
        load_codec(folder, torch.float32)
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"config\.json: can't be read"):
        load_codec(folder, torch.float32)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("", "model_type", "mimi", "is 'mimi'; 'qwen3_tts_tokenizer_12hz' is needed"),
        ("", "decode_upsample_rate", 1920, "product of the decoder's rates, 48"),
        ("", "encoder_valid_num_quantizers", 6, "is 6, the decoder has 5"),
        ("", "encoder_valid_num_quantizers", 8, "2 to 7 are needed"),
        ("decoder_config", "codebook_dim", None, r"decoder_config\.codebook_dim is None"),
        ("decoder_config", "decoder_dim", 24, "can't halve"),
        ("decoder_config", "hidden_act", "tanh", "known: gelu"),
        ("decoder_config", "rope_scaling", {"rope_type": "yarn"}, "rope_scaling isn't computed"),
        ("decoder_config", "upsample_rates", [0], "whole numbers are needed"),
        ("decoder_config", "num_hidden_layers", 10**9, "from 1 to 512"),
        ("encoder_config", "use_causal_conv", False, "is False; known: True"),
        ("encoder_config", "pad_mode", "reflect", "known: constant, replicate"),
        ("encoder_config", "audio_channels", 2, "known: 1"),
        ("encoder_config", "frame_rate", 1000.0, "below 1000 Hz"),
    ],
)
def test_a_config_that_is_not_computed_is_refused(folder: Path, part: str, name: str, value: Any, message: str) -> None:
    edit_config(folder, lambda content: (content[part] if part else content).update({name: value}))
    with pytest.raises(ModelFileError, match=message):
        load_codec(folder, torch.float32)


def test_a_config_of_other_sizes_is_noticed(folder: Path) -> None:
    edit_config(folder, lambda content: content["decoder_config"].update(latent_dim=32))
    with pytest.raises(ModelFileError, match="belong to different models"):
        load_codec(folder, torch.float32)
    (folder / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelFileError, match="must be an object"):
        load_codec(folder, torch.float32)
