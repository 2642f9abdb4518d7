"""Checkpoints as they are published, and what is refused: wrong, damaged, missing and hostile files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mizuoto_runtime.engines.f5tts.config import MEL_BANDS, read_architecture
from mizuoto_runtime.engines.f5tts.weights import load_modules
from mizuoto_runtime.errors import ModelFileError, ModelNotFound
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve
from tests.golden.f5tts.cases import MODELS, VOCABULARY, VOCODER
from tests.golden.f5tts.checkpoint import STEP_NUMBER, shapes, write_model, write_vocoder

WEIGHTS = f"model_{STEP_NUMBER}.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_vocoder(tmp_path / "f5tts" / "vocos")
    return write_model(tmp_path / "f5tts" / "one", "v1")


def arch(folder: Path, **changes: object) -> None:
    """Change the model's arch.json; None removes a key."""
    described = {**json.loads((folder / "arch.json").read_text(encoding="utf-8")), **changes}
    kept = {key: value for key, value in described.items() if value is not None}
    (folder / "arch.json").write_text(json.dumps(kept), encoding="utf-8")


def weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_loads_in_its_own_dtype(tmp_path: Path, name: str) -> None:
    write_vocoder(tmp_path / "vocos")
    loaded = load_modules(write_model(tmp_path / name, name, dtype=torch.bfloat16))
    expected = torch.float32 if MODELS[name].get("mel_spec_type") == "bigvgan" else torch.bfloat16
    assert {parameter.dtype for parameter in loaded.network.parameters()} == {expected}
    assert not any(parameter.requires_grad for parameter in loaded.network.parameters())
    assert (loaded.vocoder is None) is (expected == torch.float32)


def test_loading_draws_no_random_number(folder: Path) -> None:
    before = torch.get_rng_state()
    load_modules(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_files_may_lie_one_level_up(folder: Path) -> None:
    (folder / "vocab.txt").rename(folder.parent / "vocab.txt")
    assert load_modules(folder).vocabulary.size == len(VOCABULARY)
    assert load_modules(folder / WEIGHTS).vocabulary.size == len(VOCABULARY)
    (folder.parent / "vocos").rename(folder.parent.parent / "vocos-mel-24khz")
    assert load_modules(folder).vocoder is not None


def test_a_library_finds_them_by_their_weights(folder: Path) -> None:
    write_model(folder.parent / "F5-TTS" / "F5TTS_Base", "base")
    session = Session(resolve(environment={}), ModelLibrary([folder.parent.parent]))
    assert set(session.library.installed(session.engines.spec("f5tts"))) == {"one", "F5-TTS/F5TTS_Base"}


def test_the_checkpoint_of_most_steps_is_taken(folder: Path) -> None:
    (folder / "model_900.safetensors").write_bytes(b"older")
    (folder / "model_last.pt").write_bytes(b"of training")
    load_modules(folder)


def test_a_checkpoint_of_plain_weights_loads(folder: Path) -> None:
    plain = {name.removeprefix("ema_model."): value for name, value in load_file(folder / WEIGHTS).items()}
    (folder / WEIGHTS).unlink()
    torch.save({"model_state_dict": plain, "optimizer_state_dict": {"state": {}}}, folder / "model_1.pt")
    load_modules(folder)
    torch.save(plain, folder / "model_2.pt", _use_new_zipfile_serialization=False)
    load_modules(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tensors: tensors.pop("ema_model.transformer.proj_out.bias"), "1 weights are missing: 'output.bias"),
        (lambda tensors: tensors.update({"ema_model.more": torch.ones(1)}), "unexpected weights: 'more'"),
        (
            lambda tensors: tensors.update({"ema_model.transformer.proj_out.bias": torch.ones(3)}),
            r"'transformer\.proj_out\.bias' is \[3\]; by arch\.json it is \[100\]",
        ),
        (
            lambda tensors: tensors.update({"ema_model.transformer.proj_out.bias": torch.ones(100, dtype=torch.int8)}),
            "int8; it must be floating-point",
        ),
        (
            lambda tensors: tensors.update({"transformer.proj_out.bias": torch.ones(100)}),
            r"'ema_model\.transformer\.proj_out\.bias' and 'transformer\.proj_out\.bias' are the same weight",
        ),
        (
            lambda tensors: tensors.update({"ema_model.proj_out.bias": torch.ones(100)}),
            r"'proj_out\.bias' and 'transformer\.proj_out\.bias' are the same weight, 'output\.bias'",
        ),
    ],
)
def test_a_wrong_weight_is_named(folder: Path, change: Callable[[Any], object], problem: str) -> None:
    weights(folder, change)
    with pytest.raises(ModelFileError, match=problem):
        load_modules(folder)


def test_weights_that_nothing_computes_in_are_refused_unless_a_dtype_is_asked_for(folder: Path) -> None:
    weights(folder, lambda tensors: tensors.update({key: to_8_bit(value) for key, value in tensors.items()}))
    with pytest.raises(ModelFileError, match=r"are float8_e4m3fn; .* Set compute\.dtype"):
        load_modules(folder)
    assert load_modules(folder, torch.float32).network.dtype == torch.float32


def to_8_bit(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float8_e4m3fn) if tensor.is_floating_point() else tensor


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: torch.zeros(1).expand(tensor.shape),
        lambda tensor: tensor.to_sparse(),
        lambda tensor: tensor.to("meta"),
    ],
)
def test_a_pt_holds_plain_tensors_only(folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    path = folder.parent / "vocos" / "pytorch_model.bin"
    path = path if path.is_file() else next(folder.glob("**/pytorch_model.bin"))
    content = torch.load(path, weights_only=True)
    content["head.out.weight"] = change(content["head.out.weight"])
    torch.save(content, path)
    with pytest.raises(ModelFileError, match=r"'head\.out\.weight' are no plain tensors; download"):
        load_modules(folder)


def test_another_models_weights_are_refused(folder: Path) -> None:
    save_file({"talker.weight": torch.ones(2)}, folder / WEIGHTS)
    with pytest.raises(ModelFileError, match="neither F5-TTS's nor E2-TTS's"):
        load_modules(folder)


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 truncated", pickle.dumps({"a": Hostile()}, protocol=2), b"[]" * 99]
)
def test_a_damaged_or_hostile_pt_is_refused(folder: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "model_1.pt").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model_1\.pt: damaged"):
        load_modules(folder)
    assert "must not run" not in capsys.readouterr().out


@pytest.mark.parametrize("kept", [0, 7, 300, 30_000])
def test_a_truncated_file_is_refused(folder: Path, kept: int) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:kept])
    with pytest.raises(ModelFileError, match=r"safetensors: truncated"):
        load_modules(folder)
    (folder / WEIGHTS).write_bytes(whole)
    vocoder = folder.parent / "vocos" / "pytorch_model.bin"
    vocoder.write_bytes(vocoder.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match=r"pytorch_model\.bin: damaged"):
        load_modules(folder)


def test_what_is_missing_is_said(folder: Path) -> None:
    (folder.parent / "vocos").rename(folder.parent / "elsewhere")
    with pytest.raises(ModelNotFound, match=r"no vocoder.*charactr/vocos-mel-24khz.*into .*vocos"):
        load_modules(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(ModelNotFound, match=r"no vocab\.txt"):
        load_modules(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelNotFound, match=r"holds no model_\*\.safetensors"):
        load_modules(folder)


def test_another_models_vocabulary_is_refused(folder: Path) -> None:
    with (folder / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("more\n")
    count = len(VOCABULARY)
    with pytest.raises(ModelFileError, match=rf"knows {count} tokens, its vocab\.txt has {count + 1}"):
        load_modules(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"dim": 65}, "dim is 65; a multiple of 16"),
        ({"depth": "many"}, "depth is 'many'; a whole number"),
        ({"dim_head": 63}, "dim_head is 63; an even number"),
        ({"text_dim": 31}, "text_dim is 31; with conv_layers an even number"),
        ({"backbone": "MMDiT"}, "backbone is 'MMDiT'; known: DiT"),
        ({"qk_norm": "layer_norm"}, "qk_norm is 'layer_norm'; known: None, rms_norm"),
        ({"mel_spec_type": "encodec"}, "mel_spec_type is 'encodec'; known: vocos, bigvgan"),
        ({"mel_spec": {"hop_length": 320}}, "mel_spec.hop_length is 320; known: 256"),
        ({"text_mask_padding": False, "text_embedding_average_upsampling": True}, "needs text_mask_padding"),
        ({"skip_connect_type": "add"}, "skip_connect_type is unknown; a DiT has dim, depth"),
        ({"attn_backend": "sage"}, "attn_backend is 'sage'; known: torch, flash_attn"),
        ({"depth": 4}, "are missing: 'blocks.3"),
        ({"ff_mult": 1e308}, "ff_mult is 1e\\+308; times 64 it must be 1 to"),
        ({"ff_mult": 10**30}, "times 64 it must be 1 to"),
        ({"ff_mult": 3}, r"is \[128\]; by arch\.json it is \[192\]"),
    ],
)
def test_an_architecture_that_cannot_be_is_refused(folder: Path, changes: dict[str, object], problem: str) -> None:
    arch(folder, **changes)
    with pytest.raises(ModelFileError, match=problem):
        load_modules(folder)


def test_upstreams_whole_configuration_is_read_too(folder: Path) -> None:
    expected = load_modules(folder).architecture
    flat = json.loads((folder / "arch.json").read_text(encoding="utf-8"))
    backbone = flat.pop("backbone")
    mel = {"target_sample_rate": 24_000, "n_mel_channels": 100, "hop_length": 256, "mel_spec_type": "vocos"}
    nested = {"name": "mine", "tokenizer": "pinyin", "backbone": backbone, "arch": flat, "mel_spec": mel}
    for content in (nested, {"model": nested, "ckpts": {}}, flat):
        (folder / "arch.json").write_text(json.dumps(content), encoding="utf-8")
        assert load_modules(folder).architecture == expected


REAL = {
    "DiT": {"dim": 1024, "depth": 22, "text_dim": 512, "conv_layers": 4, "inner": 1024, "mlp": 2048},
    "UNetT": {"dim": 1024, "depth": 24, "text_dim": 100, "conv_layers": 0, "inner": 1024, "mlp": 4096},
}


def released_shapes(kind: str) -> Mapping[str, tuple[int, ...]]:
    """A few of a released checkpoint's tensors: those that tell its sizes."""
    sizes = REAL[kind]
    block, attention, mlp = ("transformer_blocks", "attn", "ff") if kind == "DiT" else ("layers", "2", "4")
    found = {
        "rotary_embed.inv_freq": (32,),
        "text_embed.text_embed.weight": (2546, sizes["text_dim"]),
        "proj_out.weight": (MEL_BANDS, sizes["dim"]),
        **{f"{block}.{index}.{attention}.to_q.weight": (sizes["inner"], 1024) for index in range(sizes["depth"])},
        f"{block}.0.{mlp}.ff.0.0.weight": (sizes["mlp"], sizes["dim"]),
        **{f"text_embed.text_blocks.{index}.norm.weight": (512,) for index in range(sizes["conv_layers"])},
    }
    return {f"transformer.{name}": shape for name, shape in found.items()}


@pytest.mark.parametrize(
    ("path", "kind", "old", "v1"),
    [
        ("F5TTS_v1_Base/model_1250000.safetensors", "DiT", False, True),
        ("mine/model_1250000.safetensors", "DiT", False, True),
        ("mine/model_1200000.safetensors", "DiT", False, False),
        ("F5TTS_Base/model_1200000.safetensors", "DiT", False, False),
        ("mine/model_5.safetensors", "DiT", True, False),
        ("E2TTS_Base/model_1200000.safetensors", "UNetT", False, False),
    ],
)
def test_released_models_are_told_apart(tmp_path: Path, path: str, kind: str, old: bool, v1: bool) -> None:
    found = dict(released_shapes(kind))
    if old:
        found["mel_spec.mel_stft.mel_scale.fb"] = (513, 100)
    file = tmp_path / path
    told = read_architecture(file.parent, file, found)
    sizes = REAL[kind]
    assert (told.backbone, told.dim, told.depth, told.heads, told.dim_head) == (kind, 1024, sizes["depth"], 16, 64)
    assert (told.mlp, told.text_dim, told.conv_layers) == (sizes["mlp"], sizes["text_dim"], sizes["conv_layers"])
    assert (told.text_mask_padding, told.pe_attn_head) == ((True, None) if v1 else (False, 1))
    assert (told.skip_connect_type, told.mel_spec_type) == ("concat", "vocos")


def test_without_arch_json_the_golden_models_are_what_they_were(tmp_path: Path) -> None:
    """But for what no tensor tells."""
    write_vocoder(tmp_path / "vocos")
    for name, folder_name in (("v1", "F5TTS_v1_Base"), ("base", "mine"), ("e2", "E2TTS_Base")):
        folder = write_model(tmp_path / folder_name, name)
        described = load_modules(folder).architecture
        (folder / "arch.json").unlink()
        assert load_modules(folder).architecture == described


@pytest.mark.parametrize(
    ("part", "key", "value", "problem"),
    [
        ("head", "n_fft", 1023, "n_fft is 1023; an even number"),
        ("head", "hop_length", 300, "hop_length is 300; known: 256"),
        ("head", "dim", 32, "dim is 32; known: 64"),
        ("backbone", "input_channels", 80, "takes 80 mel bands, the model makes 100"),
        ("backbone", "adanorm_num_embeddings", 4, "adanorm_num_embeddings is set"),
        ("backbone", "num_layers", 4, "weights are missing: 'blocks.3"),
        ("feature_extractor", "sample_rate", 48_000, "sample_rate is 48000"),
    ],
)
def test_a_vocoder_that_does_not_fit_is_refused(folder: Path, part: str, key: str, value: int, problem: str) -> None:
    import yaml

    changed = json.loads(json.dumps(VOCODER))
    changed[part]["init_args"][key] = value
    (folder.parent / "vocos" / "config.yaml").write_text(yaml.safe_dump(changed), encoding="utf-8")
    with pytest.raises(ModelFileError, match=problem):
        load_modules(folder)


def test_a_vocoder_of_another_class_is_refused(folder: Path) -> None:
    config = folder.parent / "vocos" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("ISTFTHead", "IMDCTCosHead"), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"class_path is 'vocos\.heads\.IMDCTCosHead'; known: vocos"):
        load_modules(folder)
    config.write_text("a: [", encoding="utf-8")
    with pytest.raises(ModelFileError, match="not valid YAML"):
        load_modules(folder)


def test_the_recorded_shapes_are_of_every_model() -> None:
    assert set(shapes()) == {*MODELS, "vocos"}
