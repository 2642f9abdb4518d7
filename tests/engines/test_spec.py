"""Declarations: values are checked against them, and every declared engine is sound."""

import math
from pathlib import Path

import pytest

from mizuoto_runtime.engines import spec as spec_module
from mizuoto_runtime.engines.registry import ENGINES, all_engines, engine_module, engine_spec
from mizuoto_runtime.engines.spec import SHARED_TYPES, EngineSpec, Param, Phase, package
from mizuoto_runtime.errors import InputError, MissingDependency, UnknownName

SPEED = Param(name="speed", kind="float", default=-1.0, auto=-1.0, low=0.5, high=2.0, unit="x", tooltip="Speed.")
STEPS = Param(name="steps", kind="int", default=8, low=1, high=64, tooltip="Steps.")
SAMPLE = Param(name="sample", kind="bool", default=True, tooltip="Sample.")
MODE = Param(name="mode", kind="choice", default="a", choices=("a", "b"), tooltip="Mode.")
PHASE = Phase(id="p", label="P", tooltip="", takes=(), gives=(), params=(SPEED, STEPS, SAMPLE, MODE))


@pytest.mark.parametrize(
    ("param", "value", "checked"),
    [(SPEED, -1.0, None), (SPEED, -1, None), (SPEED, 2, 2.0), (STEPS, 64, 64), (STEPS, 3.0, 3), (SAMPLE, False, False)],
)
def test_a_value_is_returned_in_the_parameters_type(param: Param, value: object, checked: object) -> None:
    assert param.check(value) == checked
    assert type(param.check(value)) is type(checked)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        (SPEED, math.nan),
        (SPEED, math.inf),
        (SPEED, 10**400),
        (STEPS, -(10**400)),
        (SPEED, -0.5),
        (SPEED, 2.01),
        (SPEED, "1"),
        (SPEED, True),
        (STEPS, 3.5),
        (STEPS, 0),
        (STEPS, None),
        (SAMPLE, 1),
        (MODE, 1),
    ],
)
def test_a_wrong_value_is_refused_with_the_parameters_name_and_limits(param: Param, value: object) -> None:
    with pytest.raises(InputError, match=f"option '{param.name}'"):
        param.check(value)


def test_a_wrong_choice_lists_the_right_ones() -> None:
    with pytest.raises(UnknownName, match="Known: a, b"):
        MODE.check("c")


def test_the_limits_stand_in_the_message() -> None:
    with pytest.raises(InputError, match=r"from 0\.5 to 2 x, or -1\.0 for the model's own"):
        SPEED.check(3)


def test_a_monstrous_value_makes_no_monstrous_message() -> None:
    with pytest.raises(InputError) as caught:
        SPEED.check(10**400)
    assert len(str(caught.value)) < 200


def test_defaults_fill_in_and_unknown_options_are_refused() -> None:
    assert PHASE.check({"steps": 2}) == {"speed": None, "steps": 2, "sample": True, "mode": "a"}
    with pytest.raises(UnknownName, match="Did you mean 'steps'"):
        PHASE.check({"step": 2})


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="Known: dummy, f5tts, omnivoice, piper"):
        engine_spec("pipe")


@pytest.mark.parametrize("spec", all_engines(), ids=lambda spec: spec.id)
def test_every_engine_is_declared_soundly(spec: EngineSpec) -> None:
    assert spec.id in ENGINES
    assert spec.id.isidentifier()
    assert all(param.tooltip and param.label for phase in spec.phases for param in phase.params)
    assert all(port.tooltip for phase in spec.phases for port in (*phase.takes, *phase.gives))
    for phase in spec.phases:
        phase.check({})
        names = [port.name for port in phase.takes] + [param.name for param in phase.params]
        assert len(names) == len(set(names)), f"{phase.id} takes two things of one name"
    made = {port.type for phase in spec.phases for port in phase.gives}
    taken = {port.type for phase in spec.phases for port in phase.takes} - SHARED_TYPES - {"MODEL"}
    assert taken <= made, "a phase takes what no phase gives"


@pytest.mark.parametrize("spec", all_engines(), ids=lambda spec: spec.id)
def test_every_engine_has_a_notice(spec: EngineSpec) -> None:
    notice = Path(spec_module.__file__).parent / spec.id / "NOTICE.md"
    assert "GPL-3.0-or-later" in notice.read_text(encoding="utf-8")


@pytest.mark.parametrize("spec", all_engines(), ids=lambda spec: spec.id)
def test_same_named_options_of_an_engine_are_the_same(spec: EngineSpec) -> None:
    seen: dict[str, Param] = {}
    for phase in spec.phases:
        for param in phase.params:
            assert seen.setdefault(param.name, param) == param


@pytest.mark.parametrize("spec", all_engines(), ids=lambda spec: spec.id)
def test_every_engine_has_the_functions_that_it_declares(spec: EngineSpec) -> None:
    module = engine_module(spec)
    assert callable(module.load)
    assert all(callable(getattr(module, phase.id)) for phase in spec.phases)
    assert spec.phased or callable(module.memory_required)


def test_a_package_that_is_missing_is_said_with_how_to_get_it() -> None:
    assert package("JSON", module="json", purpose="a test").check() is None
    with pytest.raises(MissingDependency, match="the package No-Such isn't installed: pip install no-such"):
        package("No-Such", module="no_such", purpose="a test").check()
