"""Settings: which value is in force, where it came from, and which ones are refused."""

from pathlib import Path

import pytest

from mizuoto_runtime import engines
from mizuoto_runtime.engines.registry import all_engines
from mizuoto_runtime.errors import InputError, UnknownName
from mizuoto_runtime.fetch import endpoint_of
from mizuoto_runtime.memory.policy import VramPolicy, allocator_conf, policy_from
from mizuoto_runtime.settings import SETTINGS, resolve, setting
from mizuoto_runtime.types import ModelRef

NAME = "compute.max_resident_models"
VARIABLE = "MIZUOTO_COMPUTE__MAX_RESIDENT_MODELS"
ENDPOINT, FOREIGN = "fetch.endpoint", "HF_ENDPOINT"


def test_defaults_are_in_force_and_valid() -> None:
    settings = resolve(environment={})
    assert settings.values == {each.name: each.default for each in SETTINGS}
    assert set(settings.sources.values()) == {"default"}
    assert all(each.check(each.default, "default") == each.default for each in SETTINGS)


def test_the_environment_beats_the_default_and_the_caller_beats_both() -> None:
    assert resolve(environment={VARIABLE: "5"}).integer(NAME) == 5
    both = resolve({NAME: "7"}, {VARIABLE: "5"})
    assert both.integer(NAME) == 7
    assert both.sources[NAME] == "--setting"


@pytest.mark.parametrize(
    "text", ["0", "65", "2.5", "many", "true", "null", "[1]", pytest.param("[" * 50_000, id="nested too deep")]
)
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


@pytest.mark.parametrize(
    ("text", "expected"), [("on", True), ("true", True), ("True", True), (" OFF ", False), ("false", False)]
)
def test_on_and_off_are_said_in_words(text: str, expected: bool) -> None:
    assert resolve({"compute.oom_retry": text}, {}).flag("compute.oom_retry") is expected


@pytest.mark.parametrize("text", ["", "1", "yes", "null", "[true]"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"compute.oom_retry \(--setting\).* it must be on or off"):
        resolve({"compute.oom_retry": text}, {})


@pytest.mark.parametrize(("text", "expected"), [("", None), (" ", None), ("0", 0), ("512", 512)])
def test_a_setting_with_an_automatic_value_may_be_empty(text: str, expected: int | None) -> None:
    settings = resolve(environment={"MIZUOTO_COMPUTE__RAM_RESERVE_MB": text})
    assert settings.values["compute.ram_reserve_mb"] == expected


@pytest.mark.parametrize("text", ["-1", "many", "1.5", "true"])
def test_an_automatic_value_is_still_checked(text: str) -> None:
    with pytest.raises(InputError, match="ram_reserve_mb"):
        resolve({"compute.ram_reserve_mb": text}, {})


def test_pinned_models_are_names_with_commas_between() -> None:
    settings = resolve({"engines.piper.pinned_models": " a, b/c ,,"}, {})
    assert settings.names("engines.piper.pinned_models") == ("a", "b/c")
    assert settings.names("engines.dummy.pinned_models") == ()
    with pytest.raises(UnknownName, match=r"Did you mean 'engines\.piper\.pinned_models'"):
        resolve({"engines.pipr.pinned_models": "a"}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "https://huggingface.co"),
        ("https://mirror.example/", "https://mirror.example"),
        (" http://10.0.0.1:8080/hub/ ", "http://10.0.0.1:8080/hub"),
        ("https://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_models_are_fetched_from_a_hub_or_a_mirror_of_it(text: str, expected: str) -> None:
    assert resolve({ENDPOINT: text}, {}).text(ENDPOINT) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mirror.example", "must be an https or http address"),
        ("ftp://mirror.example", "must be an https or http address"),
        ("https://", "must be an https or http address"),
        ("https://mirror.example:99999", "must be an https or http address"),
        ("https://[::", "must be an https or http address"),
        ("https://mirror example", "without spaces"),
        ("https://a\u200b.example", "without spaces"),
        ("https://" + "a" * 5000, "at most 2048"),
        ("https://me:secret@mirror.example", "nothing but a host"),
        ("https://mirror.example?a=1", "nothing but a host"),
        ("https://mirror.example#a", "nothing but a host"),
    ],
)
def test_what_is_no_address_of_a_hub_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"setting {ENDPOINT} \(--setting\).*{message}"):
        resolve({ENDPOINT: text}, {})


def test_a_variable_of_other_programs_names_the_hub_too_and_is_checked_when_it_is_used() -> None:
    mirror = {FOREIGN: "https://mirror.example/"}
    assert endpoint_of(resolve(environment=mirror)) == "https://mirror.example"
    assert resolve(environment=mirror).sources[ENDPOINT] == FOREIGN
    assert endpoint_of(resolve(environment={FOREIGN: ""})) == "https://huggingface.co"
    assert endpoint_of(resolve(environment={**mirror, "MIZUOTO_FETCH__ENDPOINT": "https://own.example"})) == (
        "https://own.example"
    )
    assert endpoint_of(resolve({ENDPOINT: "https://said.example"}, mirror)) == "https://said.example"
    wrong = resolve(environment={FOREIGN: "mirror.example"})
    with pytest.raises(InputError, match=rf"{ENDPOINT} \({FOREIGN}\) is 'mirror.example'"):
        endpoint_of(wrong)


def test_the_dtype_setting_names_the_engines_that_have_no_choice() -> None:
    folder = Path(engines.__file__).parent
    for spec in all_engines():
        heeds = any("loader.dtype" in path.read_text(encoding="utf-8") for path in (folder / spec.id).glob("*.py"))
        weighs = any(component.tooltip for component in spec.components) and spec.layout.kind != "builtin"
        assert (spec.label in setting("compute.dtype").help) == (weighs and not heeds), spec.id


def test_changed_settings_come_first_and_leave_the_others_alone() -> None:
    before = resolve({NAME: "7"}, {})
    after = before.changed({NAME: "8"}, "--device")
    assert (after.integer(NAME), after.sources[NAME]) == (8, "--device")
    assert (before.integer(NAME), before.sources[NAME]) == (7, "--setting")


def test_every_setting_of_the_memory_specification_makes_the_policy() -> None:
    texts = {
        "compute.vram_mode": "low",
        "compute.vram_reserve_mb": "1",
        "compute.vram_limit_mb": "2",
        "compute.ram_reserve_mb": "3",
        "compute.host_copies": "off",
        "compute.max_pinned_mb": "4",
        "compute.async_offload": "5",
        "compute.oom_retry": "off",
        "compute.oom_fallback": "on",
        "compute.kv_cache": "static",
        "compute.cuda_graphs": "off",
        "compute.gpu_jobs": "6",
        "engines.piper.pinned_models": "a,b",
    }
    assert policy_from(resolve(texts, {}), "cuda") == VramPolicy(
        mode="low",
        reserve_bytes=1 << 20,
        limit_bytes=2 << 20,
        ram_reserve_bytes=3 << 20,
        host_copies="off",
        max_pinned_bytes=4 << 20,
        side_streams=5,
        oom_retry=False,
        oom_fallback=True,
        kv_cache="static",
        cuda_graphs=False,
        gpu_jobs=6,
        pinned_models=frozenset({ModelRef("piper", "a"), ModelRef("piper", "b")}),
    )


def test_the_defaults_make_the_default_policy() -> None:
    settings = resolve(environment={})
    assert policy_from(settings, "cpu") == VramPolicy()
    assert policy_from(settings, "cuda").side_streams == 2
    assert policy_from(settings, "cuda", "low").mode == "low", "the application's own mode"


def test_graphs_are_not_captured_under_the_async_allocator() -> None:
    default, wanted = resolve({}, {}), resolve({"compute.cuda_allocator": "async"}, {})
    chosen = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    assert not policy_from(wanted, "cuda").cuda_graphs
    assert not policy_from(default, "cuda", environment=chosen).cuda_graphs, "as ComfyUI chooses it"
    assert policy_from(wanted, "cuda", environment={"PYTORCH_ALLOC_CONF": "backend:native"}).cuda_graphs


@pytest.mark.parametrize(
    ("allocator", "conf"),
    [
        ("auto", None),
        ("native", None),
        ("async", "backend:cudaMallocAsync"),
        ("expandable", "expandable_segments:True"),
    ],
)
def test_the_allocator_is_chosen_unless_one_is_set_already(allocator: str, conf: str | None) -> None:
    settings = resolve({"compute.cuda_allocator": allocator}, {})
    assert allocator_conf(settings, {}) == conf
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        assert allocator_conf(settings, {variable: "max_split_size_mb:64"}) is None
