"""Speak turns into the phase nodes of its model's engine."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

MODEL_WIRE = ["1", 0]
VOICE_WIRE = ["9", 0]


@pytest.fixture(scope="module")
def expand(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("nodes.expand")


@pytest.fixture(scope="module")
def types(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("mizuoto_runtime.types")


@pytest.fixture(scope="module")
def errors(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("mizuoto_runtime.errors")


@pytest.fixture
def call(expand: ModuleType, types: ModuleType) -> Callable[..., object]:
    def made(engine: str = "piper", *, wires: dict | None = None, **values: object) -> object:
        given = {"model": types.ModelRef(engine, "x"), "text": "Hi.", "seed": 7, **values}
        return expand.expand_speak(expand.SpeakCall(values=given, wires={"model": MODEL_WIRE, **(wires or {})}))

    return made


@pytest.fixture
def options(pack_module: Callable[[str], ModuleType]) -> Callable[..., object]:
    return lambda engine, **values: pack_module("nodes.wire").SpeakOptions(engine, values)


def test_piper_is_encode_then_decode(expand: ModuleType, call: Callable) -> None:
    made = call()
    assert [(node.phase, node.class_type) for node in made.nodes] == [
        ("encode", "MizuotoPiperEncode"),
        ("decode", "MizuotoPiperDecode"),
    ]
    encode, decode = made.nodes
    assert encode.inputs == {"model": MODEL_WIRE, "text": "Hi.", "seed": 7}
    assert decode.inputs == {"model": MODEL_WIRE, "encoding": expand.Link("encode", 0), "seed": 7}
    assert made.audio == expand.Link("decode", 0)
    assert made.report == expand.Link("decode", 1)


def test_dummy_is_one_node(expand: ModuleType, call: Callable) -> None:
    made = call("dummy")
    assert [node.class_type for node in made.nodes] == ["MizuotoDummyTones"]
    assert (made.audio, made.report) == (expand.Link("tones", 0), expand.Link("tones", 1))


def test_options_go_to_the_phase_that_has_them(call: Callable, options: Callable) -> None:
    encode, decode = call(options=options("piper", noise_w=0.5, noise_scale=0.3)).nodes
    assert encode.inputs["noise_w"] == 0.5 and "noise_scale" not in encode.inputs
    assert decode.inputs["noise_scale"] == 0.3 and "noise_w" not in decode.inputs


def test_the_decoders_option_leaves_the_encoder_as_it_was(call: Callable, options: Callable) -> None:
    assert call(options=options("piper", noise_scale=0.3)).nodes[0] == call().nodes[0]


def test_an_option_can_bring_a_phase_in(expand: ModuleType, call: Callable, options: Callable) -> None:
    voice, encode, decode = call(options=options("piper", speaker="anna")).nodes
    assert voice.class_type == "MizuotoPiperVoice"
    assert voice.inputs == {"model": MODEL_WIRE, "speaker": "anna"}
    assert encode.inputs["voice"] == expand.Link("voice", 0)
    assert decode.phase == "decode"


def test_an_option_can_be_a_link(call: Callable, options: Callable) -> None:
    encode, decode = call(options=options("piper", noise_scale=["5", 0])).nodes
    assert decode.inputs["noise_scale"] == ["5", 0] and "noise_scale" not in encode.inputs


def test_a_voice_stays_a_link_to_the_node_it_came_from(call: Callable, types: ModuleType) -> None:
    voice = types.Artifact("MIZUOTO_PIPER_VOICE", object())
    encode, _ = call(voice=voice, wires={"voice": VOICE_WIRE}).nodes
    assert encode.inputs["voice"] == VOICE_WIRE


def test_engines_must_match(call: Callable, options: Callable, types: ModuleType, errors: ModuleType) -> None:
    with pytest.raises(errors.InputError, match="the options are for Dummy, the model is Piper; connect Piper Options"):
        call(options=options("dummy", noise=0.1))
    foreign = types.Artifact("MIZUOTO_DUMMY_VOICE", object())
    with pytest.raises(errors.InputError, match="'voice' is MIZUOTO_DUMMY_VOICE, but the model is Piper, which needs"):
        call(voice=foreign, wires={"voice": VOICE_WIRE})
    voice = types.Artifact("MIZUOTO_PIPER_VOICE", object())
    with pytest.raises(errors.InputError, match="Dummy takes no input 'voice'; disconnect it"):
        call("dummy", voice=voice, wires={"voice": VOICE_WIRE})


def test_what_is_not_linked_is_refused(
    expand: ModuleType, call: Callable, types: ModuleType, errors: ModuleType
) -> None:
    with pytest.raises(errors.InputError, match="the input 'model' is 'tones'; connect a Model node"):
        call(model="tones")
    with pytest.raises(errors.InputError, match="the input 'model' must be linked"):
        values = {"model": types.ModelRef("dummy", "tones"), "text": "x"}
        expand.expand_speak(expand.SpeakCall(values=values))
    with pytest.raises(errors.InputError, match="'options' must come from the Piper Options node"):
        call(options={"noise": 1})


def test_a_voice_and_a_speaker_option_contradict(
    call: Callable, options: Callable, types: ModuleType, errors: ModuleType
) -> None:
    voice = types.Artifact("MIZUOTO_PIPER_VOICE", object())
    with pytest.raises(errors.InputError, match="speaker"):
        call(voice=voice, wires={"voice": VOICE_WIRE}, options=options("piper", speaker="anna"))
