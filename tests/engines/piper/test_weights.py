"""Loading a voice: by the graph, strictly, once converted, and never from what is damaged."""

from __future__ import annotations

import logging
import lzma
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from mizuoto_runtime.engines.piper import weights as module
from mizuoto_runtime.engines.piper.weights import Voice, load_voice
from mizuoto_runtime.errors import MizuotoError, ModelFileError, ModelNotFound
from mizuoto_runtime.weights.cache import FOLDER

GOLDEN = Path(__file__).parents[2] / "golden" / "piper"
NAME = "medium_speakers"
Edit = Callable[[onnx.GraphProto], object]


@pytest.fixture(scope="module")
def exported() -> bytes:
    return lzma.decompress((GOLDEN / f"{NAME}.onnx.xz").read_bytes())


@pytest.fixture
def path(tmp_path: Path, exported: bytes) -> Path:
    (tmp_path / "voice.onnx").write_bytes(exported)
    shutil.copy(GOLDEN / f"{NAME}.onnx.json", tmp_path / "voice.onnx.json")
    return tmp_path / "voice.onnx"


@pytest.fixture
def edited(path: Path) -> Callable[[Edit], Path]:
    def apply(edit: Edit) -> Path:
        model = onnx.load(path)
        edit(model.graph)
        path.write_bytes(model.SerializeToString())
        return path

    return apply


def state(voice: Voice) -> dict[str, torch.Tensor]:
    return {**voice.encoder.state_dict(prefix="encoder."), **voice.decoder.state_dict(prefix="decoder.")}


def same(first: Voice, second: Voice) -> bool:
    ours, theirs = state(first), state(second)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def weight(graph: onnx.GraphProto, name: str) -> onnx.TensorProto:
    return next(tensor for tensor in graph.initializer if tensor.name == name)


def node_with_bias(graph: onnx.GraphProto, bias: str) -> onnx.NodeProto:
    return next(node for node in graph.node if bias in node.input)


def test_the_first_load_converts_and_the_next_reads_only_that(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_voice(path)
    assert [each.suffix for each in sorted((path.parent / FOLDER).iterdir())] == [".safetensors", ".json"]
    monkeypatch.setattr(module, "read_onnx", lambda path: pytest.fail("read the export again"))
    second = load_voice(path)
    assert same(first, second)
    assert (first.vits, first.config) == (second.vits, second.config)


def test_without_a_cache_the_weights_are_the_same(path: Path) -> None:
    uncached = load_voice(path, cache=False)
    assert not (path.parent / FOLDER).exists()
    assert same(uncached, load_voice(path))


def test_a_folder_that_cannot_be_written_is_no_obstacle(path: Path) -> None:
    (path.parent / FOLDER).write_bytes(b"a file where the folder would be")
    assert same(load_voice(path), load_voice(path, cache=False))


def test_weights_are_ready_for_placement(path: Path) -> None:
    for cache in (True, False):
        voice = load_voice(path, cache=cache)
        for name, tensor in state(voice).items():
            assert (tensor.dtype, tensor.device.type) == (torch.float32, "cpu"), name
            assert not tensor.is_inference() and tensor.is_contiguous(), name
        assert not any(parameter.requires_grad for parameter in voice.encoder.parameters())
        assert not voice.encoder.training and not voice.decoder.training


def test_loading_touches_no_random_numbers(path: Path) -> None:
    before = torch.get_rng_state()
    load_voice(path)
    assert torch.equal(before, torch.get_rng_state())


def test_a_folder_with_one_voice_is_that_voice(path: Path) -> None:
    assert same(load_voice(path.parent), load_voice(path))


@pytest.mark.parametrize("damage", [b"", b"garbage" * 100, None])
def test_a_damaged_conversion_is_written_anew(
    path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    first = load_voice(path)
    (converted,) = (path.parent / FOLDER).glob("*.safetensors")
    good = converted.read_bytes()
    converted.unlink()  # the loaded voice keeps the file that it has mapped
    converted.write_bytes(good[:-1] + bytes([good[-1] ^ 1]) if damage is None else damage)
    with caplog.at_level(logging.INFO):
        assert same(load_voice(path), first)
    assert converted.read_bytes() == good


def test_a_conversion_that_is_no_voice_is_written_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is whole and noted but holds something else, as after an update of this program."""
    first = load_voice(path)
    graph = module.read_onnx(path)
    vits, tensors = module.read_weights(graph)
    for metadata, kept in (
        ({}, tensors),
        ({"architecture": "{}"}, tensors),
        ({"architecture": "[1]"}, tensors),
        ({"architecture": vits.to_json().replace('"layers": 2', '"layers": "x"')}, tensors),
        ({"architecture": vits.to_json()}, {}),
        ({"architecture": vits.to_json()}, dict(list(tensors.items())[1:])),
    ):
        module.WeightCache(path, module.FORM).store(graph.sha256, kept, metadata)
        with caplog.at_level(logging.WARNING):
            assert same(load_voice(path), first)
        assert "written anew" in caplog.text
        caplog.clear()


def test_another_voice_under_the_same_name_is_noticed(path: Path, edited: Callable[[Edit], Path]) -> None:
    first = load_voice(path)

    def change(graph: onnx.GraphProto) -> None:
        tensor = weight(graph, "dec.conv_post.weight")
        tensor.raw_data = (numpy_helper.to_array(tensor) * 2).tobytes()

    second = load_voice(edited(change))
    assert torch.equal(second.decoder.generator.output.weight, first.decoder.generator.output.weight * 2)
    assert len(list((path.parent / FOLDER).glob("*.safetensors"))) == 1


def test_two_processes_convert_at_once(path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        sums = list(pool.map(checksum, [path] * 4))
    assert len(set(sums)) == 1
    assert not list((path.parent / FOLDER).glob("*.tmp"))


def checksum(path: Path) -> float:
    return sum(float(tensor.double().abs().sum()) for tensor in state(load_voice(path)).values())


def test_generated_names_and_the_order_of_weights_mean_nothing(path: Path, edited: Callable[[Edit], Path]) -> None:
    expected = load_voice(path, cache=False)

    def scramble(graph: onnx.GraphProto) -> None:
        generated = sorted(tensor.name for tensor in graph.initializer if tensor.name.startswith("onnx::Conv"))
        assert len(generated) >= 32
        renamed = dict(zip(generated, generated[1:] + generated[:1], strict=True))
        for tensor in graph.initializer:
            tensor.name = renamed.get(tensor.name, tensor.name)
        for node in graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        tensors = list(graph.initializer)[::-1]
        del graph.initializer[:]
        graph.initializer.extend(tensors)

    assert same(load_voice(edited(scramble), cache=False), expected)


def test_weights_are_found_without_the_nodes_names(path: Path, edited: Callable[[Edit], Path]) -> None:
    expected = load_voice(path, cache=False)

    def forget(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.name = ""

    assert same(load_voice(edited(forget), cache=False), expected)


def test_equal_weights_stored_once_are_found(path: Path, edited: Callable[[Edit], Path]) -> None:
    """As the exporter does: one of them is kept, the others are its Identity."""

    def share(graph: onnx.GraphProto) -> None:
        shared, name = "dp.convs.norms_1.0.gamma", "dp.convs.norms_1.1.gamma"
        graph.initializer.remove(weight(graph, name))
        graph.node.insert(0, onnx.helper.make_node("Identity", [shared], [name]))

    stack = load_voice(edited(share), cache=False).encoder.durations.stack
    assert torch.equal(stack[0].depthwise_norm.weight, stack[1].depthwise_norm.weight)


@pytest.mark.parametrize(
    "name", ["enc_p.proj.bias", "dp.flows.5.pre.weight", "dec.ups.1.weight", "flow.flows.2.post.bias", "dp.flows.0.m"]
)
def test_a_missing_weight_is_named(edited: Callable[[Edit], Path], name: str) -> None:
    path = edited(lambda graph: graph.initializer.remove(weight(graph, name)))
    with pytest.raises(ModelFileError, match=name.removesuffix(".m")) as caught:
        load_voice(path)
    assert str(path) in str(caught.value)


def test_a_missing_generated_weight_is_named_by_its_place(edited: Callable[[Edit], Path]) -> None:
    bias = "flow.flows.4.enc.in_layers.2.bias"
    path = edited(lambda graph: graph.initializer.remove(weight(graph, node_with_bias(graph, bias).input[1])))
    with pytest.raises(ModelFileError, match=r"flow\.flows\.4\.enc\.in_layers\.2\.weight"):
        load_voice(path)


@pytest.mark.parametrize("name", ["enc_p.encoder.extra.weight", "anything", "flow.flows.8.pre.bias"])
def test_an_unexpected_weight_is_named(edited: Callable[[Edit], Path], name: str) -> None:
    extra = numpy_helper.from_array(np.ones(20, dtype=np.float32), name)
    with pytest.raises(ModelFileError, match=f"'{name}'.*no place"):
        load_voice(edited(lambda graph: graph.initializer.append(extra)))


def test_a_misshapen_weight_is_named(edited: Callable[[Edit], Path]) -> None:
    def reshape(graph: onnx.GraphProto) -> None:
        tensor = weight(graph, "enc_p.proj.bias")
        tensor.dims[:] = [2, tensor.dims[0] // 2]

    with pytest.raises(ModelFileError, match=r"'enc_p\.proj\.bias' is \[2, 8\]; .* needs \[16\]"):
        load_voice(edited(reshape))


def test_other_number_formats_are_refused(edited: Callable[[Edit], Path]) -> None:
    def halve(graph: onnx.GraphProto) -> None:
        tensor = weight(graph, "enc_p.proj.weight")
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))

    with pytest.raises(ModelFileError, match="float16; only float32"):
        load_voice(edited(halve))


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [("dilations", [7], "changes the length"), ("strides", [2], "changes the length"), ("pads", [0, 3], "changes the")],
)
def test_convolutions_that_do_something_else_are_refused(
    edited: Callable[[Edit], Path], attribute: str, value: list[int], message: str
) -> None:
    def change(graph: onnx.GraphProto) -> None:
        node = node_with_bias(graph, "dec.resblocks.1.convs.0.bias")
        next(each for each in node.attribute if each.name == attribute).ints[:] = value

    with pytest.raises(ModelFileError, match=message):
        load_voice(edited(change))


def test_a_bias_on_the_wrong_convolution_is_refused(edited: Callable[[Edit], Path]) -> None:
    def swap(graph: onnx.GraphProto) -> None:
        nodes = [node_with_bias(graph, f"flow.flows.{step}.enc.in_layers.0.bias") for step in (0, 2)]
        nodes[0].input[2], nodes[1].input[2] = nodes[1].input[2], nodes[0].input[2]

    with pytest.raises(ModelFileError, match=r"could be any of flow\.flows\.0.*flow\.flows\.2"):
        load_voice(edited(swap))


def test_a_model_of_another_kind_is_refused(path: Path) -> None:
    weights = [numpy_helper.from_array(np.ones((4, 4), dtype=np.float32), "encoder.weight")]
    node = onnx.helper.make_node("MatMul", ["x", "encoder.weight"], ["y"])
    path.write_bytes(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [], weights)).SerializeToString())
    with pytest.raises(ModelFileError, match=r"'enc_p\.emb\.weight' is missing.*exported by Piper"):
        load_voice(path)


def test_voices_that_are_not_there_are_named(tmp_path: Path, path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"nothing\.onnx: there is no such file"):
        load_voice(tmp_path / "nothing.onnx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match=r"holds 0 \.onnx files"):
        load_voice(tmp_path / "empty")
    shutil.copy(path, tmp_path / "second.onnx")
    with pytest.raises(ModelNotFound, match=r"holds 2 .onnx files \(second.onnx, voice.onnx\)"):
        load_voice(tmp_path)
    with pytest.raises(ModelFileError, match=r"second.onnx.json is missing"):
        load_voice(tmp_path / "second.onnx")


@pytest.mark.parametrize("other", ["x_low", "high_speakers_plain_durations"])
def test_settings_of_another_voice_are_refused(path: Path, other: str) -> None:
    shutil.copy(GOLDEN / f"{other}.onnx.json", path.with_name("voice.onnx.json"))
    with pytest.raises(ModelFileError, match=r"num_speakers is \d, but the model has 5"):
        load_voice(path)


def test_symbols_that_the_model_lacks_are_refused(path: Path) -> None:
    settings_path = path.with_name("voice.onnx.json")
    text = settings_path.read_text(encoding="utf-8")
    settings_path.write_text(
        text.replace('"num_symbols": 40', '"num_symbols": 50').replace("[39]", "[44]"), encoding="utf-8"
    )
    with pytest.raises(ModelFileError, match="phoneme_id_map goes up to 44, but the model has 40"):
        load_voice(path)


def test_truncation_anywhere_is_refused(path: Path, exported: bytes) -> None:
    for size in [0, 1, 2, 10, 100, *range(1000, len(exported), len(exported) // 40), len(exported) - 1]:
        path.write_bytes(exported[:size])
        with pytest.raises(ModelFileError) as caught:
            load_voice(path, cache=False)
        assert str(path) in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(data=st.data())
def test_flipped_bits_are_refused_or_harmless(path: Path, exported: bytes, data: st.DataObject) -> None:
    content = bytearray(exported)
    for position in data.draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=20)):
        content[position // 8] ^= 1 << position % 8
    path.write_bytes(bytes(content))
    ids = torch.arange(5)[None]
    try:
        voice = load_voice(path, cache=False)
        voice.encoder(ids, noise=torch.zeros(1, 2, 5), noise_w=0.5, length_scale=1.0, speaker_id=0)
    except MizuotoError:
        pass
