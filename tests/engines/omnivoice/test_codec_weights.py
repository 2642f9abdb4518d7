"""Loading the audio tokenizer: strictly and mapped, without what only training needs; what is wrong is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from mizuoto_runtime.engines.omnivoice import codec_weights
from mizuoto_runtime.engines.omnivoice.codec_weights import load_modules
from mizuoto_runtime.errors import ModelFileError, ModelNotFound
from mizuoto_runtime.weights import checkpoint
from tests.golden.omnivoice.codec.signals import tones

GOLDEN = Path(__file__).parents[2] / "golden" / "omnivoice" / "codec"
WEIGHTS = "model.safetensors"
UNUSED = ("decoder_semantic.", "fc1.")
COUNTERS = (".embed_avg", ".cluster_size", ".inited")
POSITIONS = "semantic_model.encoder.pos_conv_embed.conv."
SCALE = "parametrizations.weight.original0"
FIRST = "acoustic_decoder.conv1.weight"
Edit = Callable[[dict[str, Tensor]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "plain", tmp_path / "audio_tokenizer"))


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


@pytest.mark.parametrize("name", ["plain", "varied"])
def test_every_weight_of_the_file_is_used_or_known_to_be_unused(name: str) -> None:
    _, encoder, decoder = load_modules(GOLDEN / name)
    used = [*encoder.state_dict().values(), *decoder.state_dict().values()]
    for key, tensor in load_file(GOLDEN / name / WEIGHTS).items():
        found = any(tensor.shape == other.shape and torch.equal(tensor, other) for other in used)
        folded = key.startswith(POSITIONS + "parametrizations")
        unused = key.startswith(UNUSED) or key.endswith(COUNTERS)
        assert found is not (unused or folded) or unused, key


def test_what_only_training_needs_is_never_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()

    class Watched:
        def __init__(self, file: Any) -> None:
            self.keys, self.get_slice = file.keys, file.get_slice
            self._file = file

        def get_tensor(self, name: str) -> Tensor:
            read.add(name)
            tensor: Tensor = self._file.get_tensor(name)
            return tensor

    class Opened:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._file = safe_open(*args, **kwargs)

        def __enter__(self) -> Watched:
            return Watched(self._file.__enter__())

        def __exit__(self, *error: object) -> None:
            self._file.__exit__(*error)

    monkeypatch.setattr(checkpoint, "safe_open", Opened)
    load_modules(folder)
    stored = load_file(folder / WEIGHTS).keys()
    left = stored - read
    assert left and all(name.startswith(UNUSED) or name.endswith(COUNTERS) for name in left)
    load_modules(edit(folder, lambda weights: [weights.pop(name) for name in left]))


@pytest.mark.parametrize("name", ["plain", "varied"])
def test_weights_are_ready_for_placement(name: str) -> None:
    for module in load_modules(GOLDEN / name)[1:]:
        assert isinstance(module, torch.nn.Module) and not module.training
        for key, weight in module.named_parameters():
            assert (weight.dtype, weight.device.type, weight.requires_grad) == (torch.float32, "cpu", False), key
            assert not weight.is_inference() and weight.is_contiguous(), key
        assert not list(module.buffers())


def test_loading_touches_no_random_numbers(folder: Path) -> None:
    before = torch.get_rng_state()
    load_modules(folder)
    assert torch.equal(before, torch.get_rng_state())


def rename_to_old(weights: dict[str, Tensor]) -> None:
    for new, old in (
        ("parametrizations.weight.original0", "weight_g"),
        ("parametrizations.weight.original1", "weight_v"),
    ):
        weights[POSITIONS + old] = weights.pop(POSITIONS + new)


def test_names_of_older_libraries_are_known(folder: Path) -> None:
    wave = tones(9600)[None]
    expected = load_modules(folder)[1](wave)
    edit(folder, rename_to_old)
    edit(folder, lambda weights: weights.update({"semantic_model.masked_spec_embed": torch.zeros(24)}))
    assert torch.equal(load_modules(folder)[1](wave), expected)


def test_half_precision_is_computed_in_float32(folder: Path) -> None:
    def halve(weights: dict[str, Tensor]) -> None:
        for name in weights:
            weights[name] = weights[name].bfloat16()

    _, encoder, decoder = load_modules(edit(folder, halve))
    assert {weight.dtype for module in (encoder, decoder) for weight in module.parameters()} == {torch.float32}
    codes = encoder(tones(9600)[None])
    assert decoder(codes).dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop(FIRST), r"1 weights are missing: 'input\.weight'"),
        (lambda weights: weights.pop("fc.bias"), r"1 weights are missing: 'joint\.bias'"),
        (
            lambda weights: weights.pop("semantic_model.encoder.layers.1.layer_norm.weight"),
            r"layers\.1\.attention_norm",
        ),
        (lambda weights: weights.pop(POSITIONS + "parametrizations.weight.original0"), r"missing: 'positions\.scale'"),
        (lambda weights: weights.update({"other.weight": torch.zeros(1)}), r"unexpected weights: 'other\.weight'"),
        (
            lambda weights: weights.update({"quantizer.quantizers.8.codebook.embed": torch.zeros(64, 8)}),
            r"unexpected weights: 'quantizer\.quantizers\.8",
        ),
        (
            lambda weights: weights.update({FIRST: weights[FIRST][:5].clone()}),
            r"'acoustic_decoder\.conv1\.weight' is \[5, 16, 7\].*it is \[64, 16, 7\]",
        ),
        (lambda weights: weights.update({FIRST: weights[FIRST].int()}), r"torch\.int32; it must be floating"),
        (
            lambda weights: weights.update({f"{POSITIONS}weight_g": weights[f"{POSITIONS}{SCALE}"].clone()}),
            rf"'{POSITIONS}{SCALE}' and '{POSITIONS}weight_g' are the same weight",
        ),
        (lambda weights: weights.clear(), "weights are missing"),
    ],
)
def test_wrong_weights_are_named(folder: Path, change: Edit, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_modules(edit(folder, change))


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, 0.999])
def test_a_truncated_file_is_refused(folder: Path, kept: float) -> None:
    path = folder / WEIGHTS
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept < 1 else int(kept)])
    with pytest.raises(ModelFileError, match=r"model\.safetensors: truncated, or no safetensors file"):
        load_modules(folder)


def test_what_is_not_there_is_said(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"config\.json: can't be read"):
        load_modules(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelNotFound, match=r"there is no such file; download the model's audio_tokenizer folder"):
        load_modules(folder)


def shard(folder: Path, places: dict[str, str] | None = None) -> None:
    """Into two files, with an index, or with `places` as what it says."""
    weights = load_file(folder / WEIGHTS)
    names = sorted(weights)
    (folder / WEIGHTS).unlink()
    found = {}
    for number in range(2):
        file = f"model-{number + 1:05d}-of-00002.safetensors"
        save_file({name: weights[name] for name in names[number::2]}, folder / file)
        found |= dict.fromkeys(names[number::2], file)
    index = {"weight_map": found | (places or {})}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index), encoding="utf-8")


def test_a_codec_may_lie_in_several_files(folder: Path) -> None:
    whole = load_modules(folder)[1:]
    shard(folder)
    for module, expected in zip(load_modules(folder)[1:], whole, strict=True):
        assert isinstance(module, torch.nn.Module) and isinstance(expected, torch.nn.Module)
        for name, weight in expected.state_dict().items():
            assert torch.equal(module.state_dict()[name], weight), name


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({FIRST: "model-00003-of-00003.safetensors"}, "which isn't beside it"),
        ({FIRST: "../model.safetensors"}, "which isn't beside it"),
        ({"other": "model-00001-of-00002.safetensors"}, "unexpected weights: 'other'"),
        ({"fc.weight2": "config.json"}, r"config\.json: truncated, or no safetensors file"),
        ({FIRST: "model-00002-of-00002.safetensors"}, rf"00002\.safetensors.*{FIRST}"),
    ],
)
def test_an_index_that_is_wrong_is_refused(folder: Path, places: dict[str, str], message: str) -> None:
    shard(folder, places)
    with pytest.raises(ModelFileError, match=message):
        load_modules(folder)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("", "model_type", "mimi", "is 'mimi'; 'higgs_audio_v2_tokenizer' is needed"),
        ("", "target_bandwidths", [], r"target_bandwidths is \[\]; 1 to 512 numbers above 0"),
        ("", "target_bandwidths", [1, float("inf")], "numbers above 0 are needed"),
        ("", "target_bandwidths", [10**400], "numbers above 0 are needed"),
        ("", "target_bandwidths", [0.01], "ends with 0.01: 0 codebooks"),
        ("", "target_bandwidths", [1e9], "codebooks; 1 to 512 are needed"),
        ("", "target_bandwidths", [1e308], "codebooks; 1 to 512 are needed"),
        ("", "codebook_size", 1, "0 codebooks"),
        ("", "codebook_size", True, "a whole number"),
        ("", "channel_ratios", [1], "as many numbers as strides"),
        ("", "channel_ratios", [1, 2], "the last one 1"),
        ("", "channel_ratios", [1 << 19, 1], "as many numbers as strides"),
        ("", "block_dilations", [1] * 400, "give 800 layers; 512 are the most"),
        ("", "unit_kernel_size", 4, "only with an odd number"),
        ("", "sample_rate", 10**7, "from 1 to 384,000"),
        ("", "sample_rate", 100, "need the same product, of 100 at most"),
        ("", "acoustic_model_config", 3, "acoustic_model_config is 3; it must be an object"),
        ("acoustic_model_config", "model_type", "encodec", "known: dac"),
        ("acoustic_model_config", "upsampling_ratios", [8, 5, 4, 2], "need the same product"),
        ("acoustic_model_config", "upsampling_ratios", [1, 40, 4, 2, 3], "numbers above 1 are needed"),
        ("acoustic_model_config", "downsampling_ratios", [1 << 20] * 500, "need the same product"),
        ("acoustic_model_config", "decoder_hidden_size", 48, "5 stages can't halve it"),
        ("acoustic_model_config", "encoder_hidden_size", 1 << 16, "5 stages can't double it"),
        ("semantic_model_config", "model_type", "wavlm", "known: hubert"),
        ("semantic_model_config", "feat_extract_norm", "layer", "known: group"),
        ("semantic_model_config", "do_stable_layer_norm", True, "known: False"),
        ("semantic_model_config", "conv_pos_batch_norm", True, "known: False"),
        ("semantic_model_config", "hidden_act", "tanh", "known: gelu"),
        ("semantic_model_config", "conv_kernel", [3, 3], "need as many numbers"),
        ("semantic_model_config", "num_attention_heads", 5, "must be a multiple of num_attention_heads"),
        ("semantic_model_config", "num_hidden_layers", 10**9, "from 1 to 512"),
    ],
)
def test_a_config_that_is_not_computed_is_refused(folder: Path, part: str, name: str, value: Any, message: str) -> None:
    edit_config(folder, lambda content: (content[part] if part else content).update({name: value}))
    with pytest.raises(ModelFileError, match=message):
        load_modules(folder)


def test_a_config_of_other_sizes_is_noticed(folder: Path) -> None:
    edit_config(folder, lambda content: content["semantic_model_config"].update(intermediate_size=64))
    with pytest.raises(ModelFileError, match="belong to different models"):
        load_modules(folder)
    (folder / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelFileError, match="must be an object"):
        load_modules(folder)


def test_what_a_config_leaves_out_has_upstreams_default(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text("{}", encoding="utf-8")
    config = codec_weights.read_codec_config(folder)
    assert (config.hop_length, config.frame_rate_hz, config.quantizers, config.used) == (320, 75, 5, 5)
    assert (config.hubert.width, config.hubert.layers, config.width, config.codebook_size) == (768, 12, 256, 1024)
