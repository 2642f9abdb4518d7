"""Files of a model that are missing, left over, damaged or another model's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mizuoto_runtime.engines.omnivoice.config import read_config
from mizuoto_runtime.engines.omnivoice.weights import load_modules
from mizuoto_runtime.errors import MizuotoError, ModelFileError, ModelNotFound
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve
from tests.golden.omnivoice.checkpoint import write_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "omnivoice" / "one", "small")


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def resave(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_weights_are_mapped_not_copied(folder: Path) -> None:
    network = load_modules(folder).network
    assert all(not parameter.requires_grad for parameter in network.parameters())
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    mapped = [line.split() for line in maps.splitlines() if line.endswith(str(folder / "model.safetensors"))]
    spans = [tuple(int(end, 16) for end in line[0].split("-")) for line in mapped]
    for name, parameter in network.named_parameters():
        assert any(first <= parameter.data_ptr() < last for first, last in spans), name


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda content: content.update(model_type="qwen3"), "model_type is 'qwen3'; known: omnivoice"),
        (lambda content: content["llm_config"].update(model_type="llama"), "llm_config.model_type is 'llama'"),
        (lambda content: content.update(audio_mask_id=65), "audio_mask_id is 65; a whole number from 0 to 64"),
        (lambda content: content["llm_config"].update(num_attention_heads=3), "which 2 key heads can't serve evenly"),
        (lambda content: content["llm_config"].update(rope_scaling={"type": "yarn"}), "rope_scaling.type is 'yarn'"),
        (lambda content: content["llm_config"].update(hidden_act="tanh"), "hidden_act is 'tanh'; known"),
        (lambda content: content["llm_config"].update(head_dim=7), "head_dim is 7; rotary positions need an even"),
        (lambda content: content["llm_config"].update(vocab_size=400), r"by its config.json it is \[400, 32\]"),
        (lambda content: content["llm_config"].update(hidden_size=40), "The two files belong to different models"),
        (lambda content: content["llm_config"].update(num_hidden_layers=2), "unexpected weights: 'llm.layers.2"),
        (lambda content: content["llm_config"].update(num_hidden_layers=4), "11 weights .* are missing"),
        (lambda content: content.update(num_audio_codebook=4), "The two files belong to different models"),
    ],
)
def test_a_configuration_that_doesnt_fit_is_refused(
    folder: Path, edit: Callable[[dict[str, Any]], object], problem: str
) -> None:
    change(folder, edit)
    with pytest.raises(ModelFileError, match=problem):
        load_modules(folder)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda tensors: tensors.pop("llm.norm.weight"), "1 weights under '' are missing: 'llm.norm.weight'"),
        (lambda tensors: tensors.update(other=torch.ones(1)), "unexpected weights: 'other'"),
        (lambda tensors: tensors.update({"llm.norm.weight": torch.ones(31)}), r"is \[31\] torch.float32"),
        (lambda tensors: tensors.update({"llm.norm.weight": torch.ones(32, dtype=torch.int32)}), "torch.int32"),
    ],
)
def test_weights_that_dont_fit_are_refused(
    folder: Path, edit: Callable[[dict[str, Tensor]], object], problem: str
) -> None:
    resave(folder, edit)
    with pytest.raises(ModelFileError, match=problem):
        load_modules(folder)


def test_positions_are_read_from_files_of_both_generations_of_transformers(folder: Path) -> None:
    old = read_config(folder)

    def renew(content: dict[str, Any]) -> None:
        theta = content["llm_config"].pop("rope_theta")
        content["llm_config"]["rope_parameters"] = {"rope_theta": theta, "rope_type": "default"}

    change(folder, renew)
    assert read_config(folder) == old
    assert old.decoder.rope_theta == 1e6


def test_as_many_key_heads_as_heads_are_meant_where_null_stands(folder: Path) -> None:
    change(folder, lambda content: content["llm_config"].update(num_key_value_heads=None))
    assert read_config(folder).decoder.kv_heads == read_config(folder).decoder.heads == 4


def test_a_sliding_window_changes_nothing_since_upstreams_mask_is_whole(folder: Path) -> None:
    plain = read_config(folder)
    change(folder, lambda content: content["llm_config"].update(use_sliding_window=True, sliding_window=4))
    assert read_config(folder) == plain


def test_a_model_that_upstream_saved_whole_has_the_codec_twice(folder: Path) -> None:
    codec = load_file(folder / "audio_tokenizer" / "model.safetensors")
    expected = load_modules(folder).network.state_dict()
    resave(folder, lambda tensors: tensors.update({f"audio_tokenizer.{name}": codec[name] for name in codec}))
    for name, weight in load_modules(folder).network.state_dict().items():
        assert torch.equal(weight, expected[name])


@pytest.mark.parametrize(
    "missing", ["config.json", "model.safetensors", "tokenizer.json", "audio_tokenizer/config.json"]
)
def test_a_missing_file_is_named(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    session = Session(resolve(environment={}), ModelLibrary([folder.parent.parent]))
    spec = session.engines.spec("omnivoice")
    with pytest.raises(MizuotoError, match=missing.rpartition("/")[2]):
        session.open(session.library.at(spec, folder))


def test_a_truncated_file_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="truncated"):
        load_modules(folder)


def test_weights_of_several_files_are_found(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places = {}
    for index in range(2):
        file = f"model-{index}.safetensors"
        save_file({name: tensors[name] for name in names[index::2]}, folder / file)
        places.update(dict.fromkeys(names[index::2], file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    assert torch.equal(load_modules(folder).network.llm.norm.weight, tensors["llm.norm.weight"])


def test_no_weights_at_all_are_said(tmp_path: Path, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match="has neither"):
        load_modules(folder)


def test_a_codec_of_another_model_is_refused(folder: Path) -> None:
    def grow(content: dict[str, Any]) -> None:
        content["target_bandwidths"] = [0.6]

    path = folder / "audio_tokenizer" / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    grow(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    session = Session(resolve(environment={}), ModelLibrary([folder.parent.parent]))
    with pytest.raises(ModelFileError, match="unexpected weights"):
        session.open(session.find("omnivoice", "one"))
