"""Which phases a request goes through."""

import pytest

from mizuoto_runtime.engines.chain import speak_chain
from mizuoto_runtime.engines.spec import AUDIO, MODEL, TEXT, Component, EngineSpec, Layout, Param, Phase, Port
from mizuoto_runtime.errors import InputError, UnknownName


def port(name: str, type_: str, *, optional: bool = False) -> Port:
    return Port(name=name, type=type_, tooltip=name, optional=optional)


def text_param(name: str) -> Param:
    return Param(name=name, kind="text", default="", auto="", tooltip=name)


CLONER = EngineSpec(
    id="cloner",
    label="Cloner",
    description="",
    licence="",
    layout=Layout(kind="builtin"),
    components=(Component(name="lm", kind="sequence", tooltip=""),),
    phased=True,
    phases=(
        Phase(
            id="clone",
            label="Clone",
            tooltip="",
            takes=(
                port("model", MODEL),
                port("reference", AUDIO),
                port("reference_text", TEXT, optional=True),
            ),
            gives=(port("voice", "VOICE"),),
            when=("reference",),
        ),
        Phase(
            id="design",
            label="Design",
            tooltip="",
            takes=(port("model", MODEL),),
            gives=(port("voice", "VOICE"),),
            params=(text_param("description"),),
            when=("description",),
        ),
        Phase(
            id="talk",
            label="Talk",
            tooltip="",
            takes=(port("model", MODEL), port("text", TEXT), port("voice", "VOICE", optional=True)),
            gives=(port("log", "LOG"), port("codes", "CODES")),
            params=(text_param("style"),),
        ),
        Phase(
            id="decode",
            label="Decode",
            tooltip="",
            takes=(port("model", MODEL), port("codes", "CODES")),
            gives=(port("audio", AUDIO),),
        ),
    ),
)
NEEDS_VOICE = EngineSpec(
    id="needy",
    label="Needy",
    description="",
    licence="",
    layout=Layout(kind="builtin"),
    components=(),
    phased=True,
    phases=(
        CLONER.phases[0],
        Phase(
            id="talk",
            label="Talk",
            tooltip="",
            takes=(port("text", TEXT), port("voice", "VOICE")),
            gives=(port("audio", AUDIO),),
        ),
    ),
)


def ids(inputs: set[str], options: dict[str, object] | None = None) -> list[str]:
    return [step.phase.id for step in speak_chain(CLONER, inputs, options or {})]


def test_without_a_voice_the_optional_port_stays_empty() -> None:
    assert ids({"text"}) == ["talk", "decode"]


def test_a_reference_chooses_cloning_and_a_description_designing() -> None:
    assert ids({"text", "reference"}) == ["clone", "talk", "decode"]
    assert ids({"text", "reference", "reference_text"}) == ["clone", "talk", "decode"]
    assert ids({"text"}, {"description": "old"}) == ["design", "talk", "decode"]


def test_an_option_at_its_default_chooses_nothing() -> None:
    assert ids({"text"}, {"description": ""}) == ["talk", "decode"]


def test_a_supplied_voice_needs_no_voice_phase() -> None:
    assert ids({"text", "voice"}) == ["talk", "decode"]


def test_links_name_the_phase_and_the_output() -> None:
    steps = {step.phase.id: step for step in speak_chain(CLONER, {"text", "reference"}, {})}
    assert steps["talk"].links == {"voice": ("clone", 0)}
    assert steps["decode"].links == {"codes": ("talk", 1)}


def test_what_would_have_no_effect_is_refused() -> None:
    with pytest.raises(InputError, match="no use for description"):
        ids({"text", "voice"}, {"description": "old"})
    with pytest.raises(InputError, match="no use for referenc,"):
        ids({"text", "referenc", "reference"}, {"description": "old"})
    with pytest.raises(UnknownName, match="Did you mean 'style'"):
        ids({"text"}, {"stile": "x"})


def test_of_what_would_have_no_effect_it_is_said_what_it_goes_with() -> None:
    with pytest.raises(InputError, match=r"reference_text .*; leave it out, or give reference too\. It takes style,"):
        ids({"text", "reference_text"})
    with pytest.raises(InputError, match=r"no use for reference in this request .*; leave it out\. It takes"):
        ids({"text", "voice", "reference"})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="also needs: text"):
        ids(set())
    with pytest.raises(InputError, match=r"also needs: voice \(or reference\)"):
        speak_chain(NEEDS_VOICE, {"text"}, {})
