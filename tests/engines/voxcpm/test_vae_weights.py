"""Loading the audio VAE: strictly, from either file, mapped; what is wrong is named."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mizuoto_runtime.engines.voxcpm.vae_config import KEY
from mizuoto_runtime.engines.voxcpm.vae_weights import DIRECTION, NORM, PICKLE, SAFETENSORS, load_vae
from mizuoto_runtime.errors import ModelFileError, ModelNotFound
from tests.engines.voxcpm.vae_models import GOLDEN, config_of, golden_config
from tests.golden.voxcpm.vae.signals import exact_latents, exact_sound

NAME = "first"
CONFIG = golden_config(NAME)
WEIGHT = "decoder.model.3.block.2.block.3"
Weights = dict[str, Tensor]


def stored() -> Weights:
    weights: Weights = torch.load(GOLDEN / NAME / PICKLE, weights_only=True)["state_dict"]
    return weights


def run(folder: Path) -> tuple[Tensor, Tensor]:
    decoder, encoder = load_vae(folder, CONFIG)
    assert encoder is not None
    return decoder.decode(exact_latents(5, CONFIG.latent_dim)), encoder.encode(exact_sound(3001))


@cache
def expected() -> tuple[Tensor, Tensor]:
    """What the golden checkpoint gives, with as many threads as a test has."""
    return run(GOLDEN / NAME)


def same(folder: Path) -> bool:
    return all(torch.equal(made, wanted) for made, wanted in zip(run(folder), expected(), strict=True))


def test_either_file_and_either_wrapping_will_do(tmp_path: Path) -> None:
    weights = stored()
    torch.save(weights, tmp_path / PICKLE)
    assert same(tmp_path)
    torch.save({"state_dict": {}}, tmp_path / PICKLE)
    save_file(weights, tmp_path / SAFETENSORS)
    assert same(tmp_path), "safetensors come first, as they do upstream"


def test_newer_names_of_weight_norm_and_plain_weights_will_do(tmp_path: Path) -> None:
    renamed = {
        name.replace("weight_g", "parametrizations.weight.original0").replace(
            "weight_v", "parametrizations.weight.original1"
        ): weight
        for name, weight in stored().items()
    }
    torch.save(renamed, tmp_path / PICKLE)
    assert same(tmp_path)
    plain = stored()
    for name in [name for name in plain if name.endswith(NORM)]:
        direction = plain.pop(name.replace(NORM, DIRECTION))
        plain[name.replace(NORM, ".weight")] = torch._weight_norm(direction, plain.pop(name))
    torch.save(plain, tmp_path / PICKLE)
    for made, wanted in zip(run(tmp_path), expected(), strict=True):
        torch.testing.assert_close(made, wanted, atol=2e-5, rtol=0)


def test_the_unused_variance_may_be_left_out(tmp_path: Path) -> None:
    weights = {name: weight for name, weight in stored().items() if "logvar" not in name}
    assert len(weights) == len(stored()) - 3
    torch.save(weights, tmp_path / PICKLE)
    assert same(tmp_path)


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    halves = {name: weight.bfloat16() for name, weight in stored().items()}
    torch.save(halves, tmp_path / PICKLE)
    made = run(tmp_path)
    torch.save({name: weight.float() for name, weight in halves.items()}, tmp_path / PICKLE)
    for one, other in zip(made, run(tmp_path), strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, other)


def test_the_encoder_can_be_left_out(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / NAME / PICKLE, tmp_path / PICKLE)
    decoder, encoder = load_vae(tmp_path, CONFIG, encoding=False)
    assert encoder is None
    assert not any(parameter.requires_grad for parameter in decoder.parameters())
    assert torch.equal(decoder.decode(exact_latents(5, CONFIG.latent_dim)), expected()[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop(f"{WEIGHT}.bias"), rf"1 weights are missing: '{WEIGHT}\.bias'; download"),
        (lambda weights: weights.pop(f"{WEIGHT}{NORM}"), rf"1 weights are missing: '{WEIGHT}\.weight_g'"),
        (lambda weights: weights.update({"decoder.model.99.alpha": torch.zeros(1)}), r"unexpected weights: 'decoder"),
        (lambda weights: weights.update({f"{WEIGHT}.bias": torch.zeros(3)}), rf"'{WEIGHT}\.bias' is \[3\]; by {KEY}"),
        (lambda weights: weights.update({f"{WEIGHT}.bias": weights[f"{WEIGHT}.bias"].int()}), r"torch\.int32; it must"),
        (lambda weights: weights.update({f"{WEIGHT}.weight": weights[f"{WEIGHT}{DIRECTION}"].clone()}), "unexpected"),
        (lambda weights: weights.update({3: torch.zeros(1)}), "holds no weights by name"),
        (lambda weights: weights.update({f"{WEIGHT}.bias": [1.0]}), "are no plain tensors"),
        (lambda weights: weights.update({f"{WEIGHT}.bias": torch.zeros(1).expand(8)}), "are no plain tensors"),
        (lambda weights: weights.update({f"{WEIGHT}.bias": torch.zeros(8, device="meta")}), "are no plain tensors"),
        (lambda weights: weights.update({f"{WEIGHT}.bias": torch.zeros(8).to_sparse()}), "are no plain tensors"),
        (lambda weights: weights.update({f"{WEIGHT}.bias": weights["decoder.model.3.block.2.block.1.bias"]}),
         "weights lie in one place"),
        (lambda weights: weights.update({f"{WEIGHT}.parametrizations.weight.original0": torch.zeros(8, 1, 1)}),
         rf"'{WEIGHT}\.parametrizations\.weight\.original0' and '{WEIGHT}\.weight_g' are the same weight"),
        (lambda weights: weights.clear(), "holds no weights by name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, change: Callable[[Any], object], message: str) -> None:
    weights = stored()
    change(weights)
    torch.save(weights, tmp_path / PICKLE)
    with pytest.raises(ModelFileError, match=message):
        load_vae(tmp_path, CONFIG)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


@pytest.mark.parametrize("content", [_Evil(), [1, 2], {"state_dict": _Evil()}, nn.Linear(2, 2)])
def test_what_holds_more_than_tensors_is_not_run(
    tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(content, tmp_path / PICKLE)
    with pytest.raises(ModelFileError, match=r"not a file of weights|holds no weights"):
        load_vae(tmp_path, CONFIG)
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize("name", [SAFETENSORS, PICKLE])
@pytest.mark.parametrize("keep", [0, 5, 1000, -1, -5000])
def test_a_truncated_file_is_noticed(tmp_path: Path, name: str, keep: int) -> None:
    path = tmp_path / name
    if name == PICKLE:
        shutil.copy(GOLDEN / NAME / PICKLE, path)
    else:
        save_file(stored(), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFileError, match=r"download it again"):
        load_vae(tmp_path, CONFIG)


@pytest.mark.parametrize("name", [SAFETENSORS, PICKLE])
def test_other_files_are_noticed(tmp_path: Path, name: str) -> None:
    for content in (b"version https://git-lfs.github.com/spec/v1\n", pickle.dumps({"a": 1}), b"PK\x05\x06" + bytes(18)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelFileError, match=r"download it again"):
            load_vae(tmp_path, CONFIG)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"has neither audiovae\.safetensors nor audiovae\.pth; download"):
        load_vae(tmp_path, CONFIG)


@pytest.mark.parametrize(
    ("architecture", "sizes", "message"),
    [
        ("voxcpm", {"encoder_dim": 0}, rf"{KEY}\.encoder_dim is 0; a whole number"),
        ("voxcpm", {"encoder_dim": True}, "encoder_dim is True"),
        ("voxcpm", {"encoder_rates": []}, r"encoder_rates is \[\]"),
        ("voxcpm", {"encoder_rates": [2, 1]}, r"encoder_rates is \[2, 1\]; 2 or more"),
        ("voxcpm", {"encoder_rates": [2] * 500}, "too many channels"),
        ("voxcpm", {"encoder_rates": [1000, 1000, 1000]}, "multiply to 1,000,000,000"),
        ("voxcpm", {"decoder_rates": [2] * 11}, "11 blocks can't halve it"),
        ("voxcpm", {"decoder_dim": 2.5}, r"decoder_dim is 2\.5"),
        ("voxcpm", {"depthwise": 1}, "depthwise is 1; true or false"),
        ("voxcpm", {"use_noise_block": True}, "use_noise_block is True; known: False"),
        ("voxcpm", [], "is \\[\\]; it must be an object"),
        ("voxcpm2", {"cond_type": "concat"}, "cond_type is 'concat'; known: scale_bias"),
        ("voxcpm2", {"cond_out_layer": True}, "cond_out_layer is True; known: False"),
        ("voxcpm2", {"sr_bin_boundaries": [3, 2]}, "the bounds must rise"),
        ("voxcpm2", {"sr_bin_boundaries": "all"}, "sr_bin_boundaries is 'all'"),
        ("voxcpm2", {"out_sample_rate": -1}, "out_sample_rate is -1"),
    ],
)
def test_sizes_that_are_not_computed_are_refused(architecture: str, sizes: Any, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        config_of(sizes, architecture)


def test_sizes_of_another_model_are_noticed() -> None:
    content = json.loads((GOLDEN / NAME / "config.json").read_text(encoding="utf-8"))[KEY]
    with pytest.raises(ModelFileError, match="belong to different models"):
        load_vae(GOLDEN / NAME, config_of({**content, "latent_dim": 7}, "voxcpm"))
    with pytest.raises(ModelFileError, match="missing"):
        load_vae(GOLDEN / NAME, config_of(content, "voxcpm2"))


def test_the_file_s_own_bounds_choose_the_condition(tmp_path: Path) -> None:
    """Upstream loads them over what config.json says."""
    weights = load_file(GOLDEN / "second" / SAFETENSORS)
    bounds = "decoder.sr_bin_boundaries"
    weights[bounds] = torch.tensor([20_000, 30_000, 50_000], dtype=torch.int32)
    for name in list(weights):
        if "sr_cond_model" in name:
            weights[name] = weights[name][[0, 1, 3, 2]]
    save_file(weights, tmp_path / SAFETENSORS)
    config, latents = golden_config("second"), exact_latents(3, 6)
    (ours, _), (theirs, _) = load_vae(tmp_path, config), load_vae(GOLDEN / "second", config)
    assert torch.equal(ours.decode(latents), theirs.decode(latents))


TORCH_BYTES = 8 << 20
"""Code that is read from torch's own files meanwhile."""
LOAD = """
import pathlib, sys
from mizuoto_runtime.engines.voxcpm.vae_weights import load_vae
from tests.engines.voxcpm.vae_models import config_of

def resident(field):
    status = pathlib.Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) << 10

sizes = {"encoder_dim": 64, "decoder_dim": 1024}
folder = pathlib.Path(sys.argv[1])
load_vae(folder.parent, config_of({**sizes, "encoder_dim": 2, "decoder_dim": 64}))
before = resident("VmRSS")
load_vae(folder, config_of(sizes))
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", [SAFETENSORS, PICKLE])
def test_loading_takes_little_more_memory_than_the_file(tmp_path: Path, name: str) -> None:
    sizes = {"encoder_dim": 64, "decoder_dim": 1024}
    for folder, changed in ((tmp_path, {"encoder_dim": 2, "decoder_dim": 64}), (tmp_path / "large", {})):
        folder.mkdir(exist_ok=True)
        weights = random_weights(config_of({**sizes, **changed}))
        (save_file if name == SAFETENSORS else torch.save)(weights, folder / name)
    done = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path / "large")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    size_bytes = (tmp_path / "large" / name).stat().st_size
    print(f"{int(done.stdout):,} of {size_bytes:,} bytes")
    assert size_bytes > 80e6
    assert int(done.stdout) < 1.1 * size_bytes + TORCH_BYTES


def random_weights(config: Any) -> Weights:
    from mizuoto_runtime.engines.voxcpm.vae_layout import BOUNDS, convolutions, others, outputs

    weights = {name: torch.ones(shape) for name, shape in others(config).items()}
    weights[BOUNDS] = torch.tensor(config.bounds_hz, dtype=torch.int32)
    for name, shape in convolutions(config).items():
        weights[f"{name}{NORM}"] = torch.ones(shape[0], 1, 1)
        weights[f"{name}{DIRECTION}"] = torch.ones(shape)
        weights[f"{name}.bias"] = torch.zeros(outputs(name, shape, config))
    return weights
