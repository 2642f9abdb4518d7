"""Settings: which value is in force, where it came from, and which ones are refused."""

import pytest

from mizuoto_runtime.errors import InputError, UnknownName
from mizuoto_runtime.settings import SETTINGS, resolve

NAME = "compute.max_resident_models"
VARIABLE = "MIZUOTO_COMPUTE__MAX_RESIDENT_MODELS"


def test_defaults_are_in_force_and_valid() -> None:
    settings = resolve(environment={})
    assert settings.values == {setting.name: setting.default for setting in SETTINGS}
    assert set(settings.sources.values()) == {"default"}
    assert all(setting.check(setting.default, "default") == setting.default for setting in SETTINGS)


def test_the_environment_beats_the_default_and_the_caller_beats_both() -> None:
    assert resolve(environment={VARIABLE: "5"}).integer(NAME) == 5
    both = resolve({NAME: "7"}, {VARIABLE: "5"})
    assert both.integer(NAME) == 7
    assert both.sources[NAME] == "--setting"


@pytest.mark.parametrize("text", ["0", "65", "2.5", "many", "true", "null", "[1]"])
def test_a_bad_value_names_the_setting_and_its_source(text: str) -> None:
    with pytest.raises(InputError, match=rf"{NAME} \({VARIABLE}\)"):
        resolve(environment={VARIABLE: text})


def test_a_mistyped_variable_is_refused_and_others_are_left_alone() -> None:
    with pytest.raises(UnknownName, match=f"Known: .*{VARIABLE}"):
        resolve(environment={"MIZUOTO_COMPUTE__MAX_MODELS": "1"})
    assert resolve(environment={"MIZUOTO_NO_BROWSER": "1", "OTHER__NAME": "1"}).integer(NAME) == 3


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=f"Known: .*{NAME}"):
        resolve({"compute.max_models": "1"}, {})
