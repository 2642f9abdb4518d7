"""Loading: strictly, from either file, in the described dtype; what is missing, left over or hostile is said."""

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

from mizuoto_runtime.engines.voxcpm.config import read_config
from mizuoto_runtime.engines.voxcpm.network import VoxCpm
from mizuoto_runtime.engines.voxcpm.spec import SPEC
from mizuoto_runtime.engines.voxcpm.weights import PICKLE, SAFETENSORS, load_model, load_modules
from mizuoto_runtime.errors import ModelFileError, ModelNotFound
from mizuoto_runtime.loader import Loader
from mizuoto_runtime.memory.device import DeviceService
from mizuoto_runtime.nn import linear, products
from mizuoto_runtime.types import ModelRef
from mizuoto_runtime.weights.alignment import ALIGNMENT_BYTES
from mizuoto_runtime.weights.pages import give_back_pages
from tests.golden.voxcpm.cases import CONFIGS
from tests.golden.voxcpm.checkpoint import write_checkpoint

NAME = "v2"
Weights = dict[str, Any]


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be spoiled."""
    return Path(shutil.copytree(root / "voxcpm" / NAME, tmp_path / NAME))


def loaded(folder: Path, dtype: torch.dtype = torch.float32, **how: Any) -> VoxCpm:
    return load_model(folder, read_config(folder), dtype, **how)


def same(made: VoxCpm, expected: VoxCpm) -> bool:
    pairs = zip(made.state_dict().values(), expected.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_either_file_and_either_wrapping_will_do(folder: Path) -> None:
    expected, stored = loaded(folder), load_file(folder / SAFETENSORS)
    torch.save({"state_dict": {}}, folder / PICKLE)
    assert same(loaded(folder), expected), "safetensors come first, as they do upstream"
    (folder / SAFETENSORS).unlink()
    for content in (stored, {"state_dict": stored}, stored | {"audio_vae.encoder.x": torch.ones(1)}):
        torch.save(content, folder / PICKLE)
        assert same(loaded(folder), expected)


@pytest.mark.parametrize("pickled", [False, True])
def test_weights_that_have_the_right_dtype_are_mapped(
    folder: Path, pickled: bool
) -> None:
    if pickled:
        spoil(folder, lambda stored: None)
    for dtype, mapped in ((torch.float32, True), (torch.bfloat16, False)):
        large = max(loaded(folder, dtype).parameters(), key=lambda each: each.nbytes)
        assert (give_back_pages([large]) > 0) is mapped


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_the_conversion_of_what_is_stored(folder: Path, dtype: torch.dtype) -> None:
    expected = loaded(folder).to(dtype)
    assert same(loaded(folder, dtype), expected)


def test_the_description_says_in_which_dtype(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, NAME, dtype=torch.bfloat16)
    modules = load_modules(tmp_path)
    assert {parameter.dtype for parameter in modules.model.parameters()} == {torch.bfloat16}
    parts = (modules.encoder, modules.decoder)
    assert {parameter.dtype for part in parts for parameter in part.parameters()} == {torch.float32}


def test_language_models_may_be_laid_out_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST_BYTES", 1)
    monkeypatch.setattr(products, "BLOCKED_DTYPES", frozenset(products.BLOCKS))
    model = loaded(folder, torch.bfloat16, blocks=True)
    layers = [*model.base_lm.layers, *model.residual_lm.layers]
    blocked = [part for layer in layers for part in layer.modules() if isinstance(part, linear.BlockedLinear)]
    assert len(blocked) == 7 * len(layers)
    assert not any(isinstance(part, linear.BlockedLinear) for part in model.feat_decoder.modules())
    assert not any(tensor.is_meta for tensor in model.state_dict().values())
    assert not any(isinstance(part, linear.BlockedLinear) for part in loaded(folder, blocks=True).modules())


def test_small_weights_lie_at_even_addresses(folder: Path) -> None:
    stored = load_file(folder / SAFETENSORS)
    for padding in range(4):
        save_file(stored, folder / SAFETENSORS, {"padding": "x" * (8 * padding)})
        model = loaded(folder)
        Loader(SPEC, ModelRef(SPEC.id, "v1"), DeviceService()).handle("model", model)
        assert all(each.data_ptr() % ALIGNMENT_BYTES == 0 for each in model.parameters())


def spoil(folder: Path, change: Callable[[Weights], object]) -> None:
    stored: Weights = dict(load_file(folder / SAFETENSORS))
    change(stored)
    (folder / SAFETENSORS).unlink()
    torch.save(stored, folder / PICKLE)


KEY = "base_lm.layers.1.mlp.gate_proj.weight"
DIT, TWIN = "feat_decoder.estimator.out_proj.weight", "feat_decoder.out_proj.weight"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda stored: stored.pop(KEY), f"1 weights are missing: '{KEY}'"),
        (lambda stored: stored.update({"lora_A": torch.ones(1)}), "'lora_A'; it is another model's"),
        (lambda stored: stored.update({KEY: stored[KEY].T.contiguous()}), rf"'{KEY}' is \[48, 80\]; by config.json"),
        (lambda stored: stored.update({KEY: stored[KEY].long()}), "int64; it must be floating-point"),
        (lambda stored: stored.update({KEY: torch.zeros(1, 1).expand(80, 48)}), "no plain tensors"),
        (lambda stored: stored.update({KEY: "text"}), "no plain tensors"),
        (lambda stored: stored.update({TWIN: stored[DIT].clone()}), f"'{DIT}' and '{TWIN}' are the same weight"),
        (lambda stored: stored.clear(), "holds no weights by name"),
    ],
)
def test_a_checkpoint_that_is_not_the_models_is_refused(
    folder: Path, change: Callable[[Weights], object], problem: str
) -> None:
    spoil(folder, change)
    with pytest.raises(ModelFileError, match=problem):
        loaded(folder)


class _Hostile:
    def __reduce__(self) -> Any:
        return exit, (1,)


def test_a_pickle_that_would_run_something_is_refused(folder: Path) -> None:
    spoil(folder, lambda stored: stored.update({KEY: _Hostile()}))
    with pytest.raises(ModelFileError, match="damaged, or not a file of weights"):
        loaded(folder)


@pytest.mark.parametrize("name", [SAFETENSORS, PICKLE])
def test_truncated_and_absent_files_are_said(folder: Path, name: str) -> None:
    stored = load_file(folder / SAFETENSORS)
    (folder / SAFETENSORS).unlink()
    with pytest.raises(ModelNotFound, match=r"has neither model\.safetensors nor pytorch_model\.bin"):
        loaded(folder)
    torch.save(stored, folder / PICKLE) if name == PICKLE else save_file(stored, folder / name)
    content = (folder / name).read_bytes()
    for length in (0, 7, len(content) // 2):
        (folder / name).write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="download it again"):
            loaded(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"architecture": "voxcpm3"}, "architecture is 'voxcpm3'; known: voxcpm, voxcpm2"),
        ({"feat_dim": 16}, "feat_dim is 16, the VAE's latent_dim 8"),
        ({"dtype": "int8"}, "dtype is 'int8'; known: bfloat16"),
        ({"patch_size": 0}, "patch_size is 0"),
        ({"lm_config.vocab_size": 100}, "vocab_size is 100; the audio tokens need more"),
        ({"lm_config.num_key_value_heads": 3}, "which 3 key heads can't serve evenly"),
        ({"lm_config.kv_channels": 15}, "kv_channels is 15; rotary positions need an even number"),
        ({"lm_config.no_rope": True}, "no_rope is True; known: False"),
        ({"lm_config.rope_scaling": None}, "rope_scaling is missing"),
        ({"lm_config.kv_channels": 32}, "short_factor must hold 16 numbers above 0"),
        ({"encoder_config.num_heads": -1}, "num_heads is -1"),
        ({"dit_config.hidden_dim": "wide"}, "hidden_dim is 'wide'"),
    ],
)
def test_a_description_that_cannot_be_is_refused(folder: Path, change: dict[str, Any], problem: str) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for key, value in change.items():
        *path, last = key.split(".")
        place = config
        for part in path:
            place = place[part]
        place[last] = value
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelFileError, match=problem):
        read_config(folder)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_weight_of_the_layout_is_used(modules: dict[str, Any], name: str) -> None:
    model: nn.Module = modules[name].model
    assert all(isinstance(tensor, Tensor) and not tensor.is_meta for tensor in model.state_dict().values())
