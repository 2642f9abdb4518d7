"""Models are found in every folder that ComfyUI knows; a server under memory pressure keeps speaking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.client import ComfyClient, Event, ExecutionFailed
from devtools.comfyui import ComfyServer, prepare_base
from devtools.tree import Tree
from tests.nodes import prompts

pytestmark = pytest.mark.server

MORE_RAM_THAN_THERE_IS_GB = "100000"
PASSING_NODE = """
class Passing:
    RETURN_TYPES, FUNCTION, CATEGORY = ("MIZUOTO_DUMMY_OPTIONS",), "passed", "test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("MIZUOTO_DUMMY_OPTIONS",)}}

    def passed(self, value):
        return (value,)


NODE_CLASS_MAPPINGS = {"TestPassing": Passing}
"""


def put_voice(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    for suffix in (".onnx", ".onnx.json"):
        (folder / f"{name}{suffix}").write_bytes(b"listed, never opened")


@pytest.fixture(scope="module")
def crowded(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    """A server with models in many places, which always wants its cached outputs back."""
    base = prepare_base(tmp_path_factory.mktemp("crowded"))
    extra = tmp_path_factory.mktemp("extra")
    named = tmp_path_factory.mktemp("named")
    put_voice(base / "models" / "mizuoto" / "piper" / "mine", "own")
    put_voice(base / "models" / "TTS" / "piper", "upper")
    put_voice(extra / "speech" / "piper", "shared")
    put_voice(extra / "others" / "piper", "foreign")
    put_voice(named / "piper", "named")
    (base / "custom_nodes" / "passing").mkdir()
    (base / "custom_nodes" / "passing" / "__init__.py").write_text(PASSING_NODE, encoding="utf-8")
    paths = extra / "paths.yaml"
    paths.write_text(f"elsewhere:\n  base_path: {extra}\n  mizuoto: speech\n  TTS: others\n", encoding="utf-8")
    arguments = ["--extra-model-paths-config", str(paths), "--cache-ram", MORE_RAM_THAN_THERE_IS_GB]
    arguments += ["--whitelist-custom-nodes", "mizuoto", "passing"]
    environment = {"MIZUOTO_PATHS__MODELS": str(named), "MIZUOTO_COMPUTE__DEVICE": "cpu"}
    with ComfyServer(tree, base, extra_args=arguments, env=environment) as running:
        yield running


def test_every_root_is_listed(crowded: ComfyServer) -> None:
    info = ComfyClient(crowded.url).object_info("MizuotoPiperModel")["MizuotoPiperModel"]
    kind, options = info["input"]["required"]["model"]
    names = options["options"] if kind == "COMBO" else kind
    assert {"mine/own", "upper", "shared", "foreign", "named"} <= set(names)


def test_new_models_belong_into_comfyuis_own_folder(crowded: ComfyServer) -> None:
    prompt = prompts.speak("Piper", "Hello.", model="de_DE-thorsten-medium")
    with pytest.raises(Exception, match="isn't installed") as caught:
        ComfyClient(crowded.url).run(prompt)
    assert str(crowded.base / "models" / "mizuoto" / "piper") in str(caught.value)


def test_the_ram_cache_may_ask_our_outputs(crowded: ComfyServer) -> None:
    client = ComfyClient(crowded.url)
    for seed in range(3):
        report = prompts.report(client.run(prompts.speak("Dummy", "Hello.", seed=seed, options={"noise": 0.1})))
        assert report["phases"][0]["seed"] == seed
    assert "Traceback" not in crowded.log().rpartition("To see the GUI go to")[2]


def test_options_may_come_through_another_packs_node(crowded: ComfyServer) -> None:
    client = ComfyClient(crowded.url)
    prompt = prompts.speak("Dummy", "Hello.", options={"tone_seconds": 0.05})
    prompt["passing"] = prompts.node("TestPassing", value=["options", 0])
    prompt["speak"]["inputs"]["options"] = ["passing", 0]
    events: list[Event] = []
    assert prompts.report(client.run(prompt, events.append))["length_samples"] == 6 * 1_200
    assert {"options", "passing"} <= set(prompts.ran(events))


def test_a_bad_setting_is_an_error_of_the_node(tree: Tree, tmp_path: Path) -> None:
    """In whichever place, at every run anew until it is mended, and never more than that: the server goes on."""
    config = tmp_path / "mizuoto.toml"
    environment = {"MIZUOTO_COMPUTE__DEVICE": "cuda:77", "MIZUOTO_CONFIG": str(config)}
    config.write_text('[compute]\nmax_resident_models = "many"\n', encoding="utf-8")
    with ComfyServer(tree, tmp_path, env=environment) as running:
        client = ComfyClient(running.url)
        for messages in (
            ["setting compute.max_resident_models", str(config), "must be a whole number"],
            ["device 'cuda:77' isn't on this machine; present: cpu"],
        ):
            for _ in range(2):
                assert "MizuotoSpeak" in client.object_info()
                with pytest.raises(ExecutionFailed) as caught:
                    client.run(prompts.speak("Dummy", "Hello."))
                assert prompts.PACK_ERROR in caught.value.details["exception_type"]
                assert [message for message in messages if message not in str(caught.value)] == []
            config.write_text("", encoding="utf-8")
        running.check()
