"""Node declarations follow from engine declarations."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

NODE_IDS = {
    "MizuotoSpeak",
    "MizuotoPiperModel",
    "MizuotoPiperVoice",
    "MizuotoPiperEncode",
    "MizuotoPiperDecode",
    "MizuotoPiperOptions",
    "MizuotoQwen3TTSModel",
    "MizuotoQwen3TTSVoiceFromAudio",
    "MizuotoQwen3TTSPresetVoice",
    "MizuotoQwen3TTSDesignedVoice",
    "MizuotoQwen3TTSSaveVoice",
    "MizuotoQwen3TTSLoadVoice",
    "MizuotoQwen3TTSTalker",
    "MizuotoQwen3TTSDecode",
    "MizuotoQwen3TTSOptions",
    "MizuotoF5TTSModel",
    "MizuotoF5TTSReference",
    "MizuotoF5TTSSample",
    "MizuotoF5TTSEditSpeech",
    "MizuotoF5TTSVocoder",
    "MizuotoF5TTSOptions",
    "MizuotoVoxCPMModel",
    "MizuotoVoxCPMVoice",
    "MizuotoVoxCPMGenerate",
    "MizuotoVoxCPMDecode",
    "MizuotoVoxCPMOptions",
    "MizuotoOmniVoiceModel",
    "MizuotoOmniVoiceVoice",
    "MizuotoOmniVoiceDesignedVoice",
    "MizuotoOmniVoiceGenerate",
    "MizuotoOmniVoiceDecode",
    "MizuotoOmniVoiceOptions",
    "MizuotoDummyModel",
    "MizuotoDummyTones",
    "MizuotoDummyOptions",
}


@pytest.fixture(scope="session")
def declare(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("nodes.declare")


@pytest.fixture(scope="session")
def specs(pack_module: Callable[[str], ModuleType]) -> tuple:
    return pack_module("mizuoto_runtime.engines.registry").all_engines()


@pytest.fixture(scope="session")
def nodes(declare: ModuleType, specs: tuple) -> dict:
    return {node.id: node for node in declare.node_declarations(specs)}


def test_ids(nodes: dict) -> None:
    assert set(nodes) == NODE_IDS


def test_everything_has_a_tooltip_and_a_label(nodes: dict) -> None:
    for node in nodes.values():
        assert node.label and node.description
        for item in (*node.inputs, *node.outputs):
            assert item.label and item.tooltip, f"{node.id}.{item.id}"


def test_ids_within_a_node_are_unique(nodes: dict) -> None:
    for node in nodes.values():
        ids = [item.id for item in (*node.inputs, *node.outputs)]
        assert len(set(ids)) == len(ids), node.id


def test_categories(nodes: dict) -> None:
    assert nodes["MizuotoSpeak"].category == "audio/mizuoto"
    assert nodes["MizuotoPiperEncode"].category == "audio/mizuoto/Piper"


def test_sockets_are_typed_per_engine(nodes: dict) -> None:
    encode = {item.id: item for item in nodes["MizuotoPiperEncode"].inputs}
    assert encode["model"].types == ("MIZUOTO_PIPER_MODEL",)
    assert encode["voice"].types == ("MIZUOTO_PIPER_VOICE",)
    assert encode["voice"].optional
    assert nodes["MizuotoPiperEncode"].outputs[0].type == "MIZUOTO_PIPER_ENCODING"
    assert [item.type for item in nodes["MizuotoPiperDecode"].outputs] == ["AUDIO", "STRING"]


def test_no_two_engines_share_a_socket_type(nodes: dict, specs: tuple) -> None:
    owners: dict[str, set[str]] = {}
    for node in nodes.values():
        if node.engine:
            for item in node.outputs:
                owners.setdefault(item.type, set()).add(node.engine)
    shared = {name for name, engines in owners.items() if len(engines) > 1}
    assert shared == {"AUDIO", "STRING"}


def test_speak_takes_every_engine(nodes: dict) -> None:
    speak = {item.id: item for item in nodes["MizuotoSpeak"].inputs}
    sounds = ["voice", "reference", "reference_text", "recording", "prompt", "prompt_text"]
    assert list(speak) == ["model", "text", "seed", *sounds, "options"]
    engines = ("PIPER", "QWEN3TTS", "F5TTS", "VOXCPM", "OMNIVOICE", "DUMMY")
    assert speak["model"].types == tuple(f"MIZUOTO_{engine}_MODEL" for engine in engines)
    assert speak["options"].types == tuple(f"MIZUOTO_{engine}_OPTIONS" for engine in engines)
    assert speak["voice"].types == tuple(f"MIZUOTO_{engine}_VOICE" for engine in engines[:5])
    assert speak["voice"].optional and speak["options"].optional


def test_a_widget_admits_the_value_that_means_the_models_own(nodes: dict, specs: tuple) -> None:
    checked = 0
    for spec in specs:
        for phase in spec.phases:
            of_phase = [node for node in nodes.values() if (node.engine, node.phase) == (spec.id, phase.id)]
            widgets = {item.id: item for node in of_phase for item in node.inputs}
            for param in phase.params:
                widget = widgets[param.name]
                assert widget.default == param.default and widget.optional
                if isinstance(param.auto, float):
                    lowest, highest = widget.widget_range
                    assert lowest <= param.auto <= highest and highest == param.high
                    checked += 1
    assert checked >= 3


def test_options_node_has_every_parameter(nodes: dict, declare: ModuleType, specs: tuple) -> None:
    piper = next(spec for spec in specs if spec.id == "piper")
    names = [item.id for item in nodes["MizuotoPiperOptions"].inputs]
    assert names == [param.name for param in declare.engine_params(piper)]
    assert {"speaker", "length_scale", "noise_w", "noise_scale", "sentence_silence"} <= set(names)


def test_seeded_phases_have_a_seed(nodes: dict) -> None:
    for name in ("MizuotoPiperEncode", "MizuotoPiperDecode", "MizuotoDummyTones", "MizuotoSpeak"):
        seed = next(item for item in nodes[name].inputs if item.kind == "seed")
        assert (seed.low, seed.high) == (0, 2**64 - 1)
    assert all(item.kind != "seed" for item in nodes["MizuotoPiperVoice"].inputs)


def test_a_cloning_engine_brings_its_reference_to_speak(pack_module: Callable[[str], ModuleType]) -> None:
    declare = pack_module("nodes.declare")
    made = _cloning_engine(pack_module("mizuoto_runtime.engines.spec"))
    inputs = {item.id: item for item in declare.node_declarations((made,))[0].inputs}
    assert list(inputs) == ["model", "text", "seed", "reference", "reference_text", "voice", "options"]
    assert inputs["reference"].types == ("AUDIO",)
    assert inputs["reference_text"].kind == "paragraph"
    assert inputs["voice"].types == ("MIZUOTO_ECHO_2_VOICE",)
    assert all(inputs[name].optional for name in ("reference", "reference_text", "voice"))
    assert declare.phase_node_id(made, made.phases[0]) == "MizuotoEcho2CloneVoice"


def _cloning_engine(spec: ModuleType) -> object:
    model = spec.Port(name="model", type="MODEL", tooltip="m")
    voice = spec.Port(name="voice", type="VOICE", tooltip="v")
    clone = spec.Phase(
        id="clone",
        label="Clone voice",
        tooltip="c",
        takes=(
            model,
            spec.Port(name="reference", type="AUDIO", tooltip="r"),
            spec.Port(name="reference_text", type="TEXT", tooltip="t", optional=True),
        ),
        gives=(voice,),
    )
    speak = spec.Phase(
        id="generate",
        label="Generate",
        tooltip="g",
        takes=(model, spec.Port(name="text", type="TEXT", tooltip="t"), voice),
        gives=(spec.Port(name="audio", type="AUDIO", tooltip="a"),),
    )
    return spec.EngineSpec(
        id="echo_2",
        label="Echo-2",
        description="d",
        licence="l",
        layout=spec.Layout(kind="builtin"),
        components=(),
        phases=(clone, speak),
        phased=True,
    )
