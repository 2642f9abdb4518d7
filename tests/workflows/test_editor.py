"""The pack in ComfyUI's own editor, in a headless Chromium."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer
from tests.conftest import EDITOR_READY, EMPTY_GRAPH, Editor

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

pytestmark = [pytest.mark.server, pytest.mark.browser]

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOWS = ROOT / "workflows"
NAMES = sorted(path.stem for path in WORKFLOWS.glob("*.json"))
RUN_TIMEOUT_S = 120
PROBE = "试探"
RUN_BUTTONS = '[data-testid="queue-button"], .comfyui-queue-button .p-splitbutton-button'
COMPLAINTS = ".p-toast-message-error, .p-toast-message-warn, .comfy-missing-nodes"
INFO_BUTTON = '[data-testid="info-button"]'
HELP_PANEL = ".node-help-content"
LARGEST_EXACT = 2**53 - 1


def load(page: Page, name: str) -> None:
    workflow = json.loads((WORKFLOWS / f"{name}.json").read_text(encoding="utf-8"))
    page.evaluate("async (workflow) => { await app.loadGraphData(workflow, true, false) }", workflow)


def prompt_of(page: Page, client: ComfyClient) -> dict[str, Any]:
    """What the editor would queue: only inputs that the server knows, as some core nodes add some for display."""
    made = page.evaluate("async () => (await app.graphToPrompt()).output")
    known = client.object_info()
    for node in made.values():
        node.pop("_meta", None)
        declared = {name for group in known[node["class_type"]]["input"].values() for name in group}
        node["inputs"] = {name: value for name, value in node["inputs"].items() if name in declared}
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_gives_the_prompt_of_its_api_file(page: Page, client: ComfyClient, name: str) -> None:
    load(page, name)
    expected = json.loads((WORKFLOWS / "api" / f"{name}.json").read_text(encoding="utf-8"))
    for node in expected.values():
        node.pop("_meta", None)
    assert prompt_of(page, client) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_loads_without_complaint(page: Page, name: str) -> None:
    load(page, name)
    broken = page.evaluate("() => app.graph.nodes.filter(node => node.has_errors).map(node => node.type)")
    assert broken == []
    assert page.locator(COMPLAINTS).all_inner_texts() == []


def test_the_run_button_makes_speech(page: Page, client: ComfyClient) -> None:
    load(page, "piper_speak")
    page.evaluate("app.graph.nodes.flatMap(node => node.widgets).find(one => one?.name === 'text').value = 'Hello.'")
    before = set(client.get_json("/history"))
    page.locator(RUN_BUTTONS).first.click()
    deadline_s = time.monotonic() + RUN_TIMEOUT_S
    while not (new := set(client.get_json("/history")) - before):
        assert time.monotonic() < deadline_s, "nothing was run"
        page.wait_for_timeout(200)
    entry = client.get_json("/history")[new.pop()]
    assert entry["status"]["status_str"] == "success"
    assert any(output.get("audio") for output in entry["outputs"].values())
    toggle = "window.app.extensionManager.sidebarTab.toggleSidebarTab('mizuoto')"
    page.evaluate(toggle)
    card = page.locator('[data-model^="piper:"]')
    card.wait_for()
    assert "models run on the CPU" in page.inner_text(".mizuoto-panel")
    actions = card.locator("[data-action]").evaluate_all("buttons => buttons.map(button => button.dataset.action)")
    assert actions == ["unload", "pin"], "on a CPU nothing is moved"
    page.evaluate(toggle)


def test_the_editor_refuses_wires_between_engines(page: Page) -> None:
    refused = page.evaluate("""() => {
      const add = (type) => { const node = LiteGraph.createNode(type); app.graph.add(node); return node }
      const [piper, dummy, speak, encode] =
        ['MizuotoPiperModel', 'MizuotoDummyModel', 'MizuotoSpeak', 'MizuotoPiperEncode'].map(add)
      const socket = (node, name) => node.inputs.findIndex(input => input.name === name)
      return [
        !!dummy.connect(0, encode, socket(encode, 'model')),
        !!piper.connect(0, encode, socket(encode, 'model')),
        !!dummy.connect(0, speak, socket(speak, 'model')),
        !!piper.connect(0, speak, socket(speak, 'model')),
        !!piper.connect(0, speak, socket(speak, 'options')),
      ]
    }""")
    assert refused == [False, True, True, True, False]


def test_numbers_keep_their_digits(page: Page, client: ComfyClient) -> None:
    """The editor rounds a number to its widget's step, so what is a multiple of it must stay as it is."""
    page.evaluate(
        """([seed, noise, scale]) => {
      const add = (type) => { const node = LiteGraph.createNode(type); app.graph.add(node); return node }
      const put = (node, name, value) => {
        const widget = node.widgets.find(widget => widget.name === name)
        widget.value = value
        widget.callback?.(value)
      }
      const options = add('MizuotoPiperOptions')
      put(options, 'noise_scale', noise)
      put(options, 'length_scale', scale)
      put(add('MizuotoSpeak'), 'seed', seed)
    }""",
        [LARGEST_EXACT, 0.66, -1],
    )
    inputs = {node["class_type"]: node["inputs"] for node in prompt_of(page, client).values()}
    assert inputs["MizuotoSpeak"]["seed"] == LARGEST_EXACT
    assert inputs["MizuotoPiperOptions"]["noise_scale"] == 0.66
    assert inputs["MizuotoPiperOptions"]["length_scale"] == -1


def with_probe(route: Route) -> None:
    """ComfyUI's answer with a translation of a core node added, as if another pack had brought it."""
    answer = route.fetch()
    translations = answer.json()
    translations["zh"]["nodeDefs"]["PreviewAny"] = {"display_name": PROBE}
    route.fulfill(response=answer, json=translations)


@pytest.fixture(scope="module")
def chinese_page(browser: Browser, server: ComfyServer) -> Iterator[Page]:
    client = ComfyClient(server.url)
    client.post_json("/settings", {"Comfy.TutorialCompleted": True, "Comfy.Locale": "zh"})
    opened = browser.new_page(locale="zh-CN")
    opened.route("**/api/i18n", with_probe)
    opened.goto(client.url)
    opened.wait_for_function(EDITOR_READY)
    client.post_json("/settings", {"Comfy.Locale": "en"})
    yield opened
    opened.close()


def test_the_editor_speaks_chinese(chinese_page: Page) -> None:
    """Editors such as 1.32 drop every pack's translations; there the English texts must stand."""
    probe = chinese_page.evaluate("() => LiteGraph.createNode('PreviewAny').title")
    language = "zh" if probe == PROBE else "en"
    texts = json.loads((ROOT / "locales" / language / "nodeDefs.json").read_text(encoding="utf-8"))
    shown = chinese_page.evaluate(
        """(ids) => ids.map(id => {
      const node = LiteGraph.createNode(id)
      return [node.title, node.outputs.map(output => output.localized_name), node.constructor.category]
    })""",
        list(texts),
    )
    for (title, outputs, category), (node_id, expected) in zip(shown, texts.items(), strict=True):
        assert title == expected["display_name"]
        assert outputs == [output["name"] for output in expected["outputs"].values()], node_id
        assert "mizuoto" in category.lower()


def test_an_empty_text_box_shows_its_label(page: Page, chinese_page: Page) -> None:
    placeholders = """() => {
      const node = LiteGraph.createNode('MizuotoVoxCPMVoice')
      app.graph.add(node)
      const shown = node.widgets.map(widget => [widget.label, widget.element.placeholder])
      app.graph.remove(node)
      return shown
    }"""
    assert page.evaluate(placeholders) == [["reference text"] * 2, ["prompt text"] * 2]
    assert all(label == placeholder for label, placeholder in chinese_page.evaluate(placeholders))


def test_the_server_hands_out_the_translations(client: ComfyClient) -> None:
    for language in ("en", "zh"):
        given = client.get_json("/i18n")[language]
        for part in ("nodeDefs", "main"):
            own = json.loads((ROOT / "locales" / language / f"{part}.json").read_text(encoding="utf-8"))
            for key, value in (own if part == "main" else {"nodeDefs": own}).items():
                assert value.items() <= given[key].items()


def open_help(page: Page, node_id: str) -> Locator:
    """The help panel of a node alone in the graph, opened as people do: click the node, then ⓘ above it."""
    page.evaluate(
        """async ([graph, id]) => {
      await app.loadGraphData(graph)
      await new Promise((fitted) => setTimeout(fitted, 500))
      const node = LiteGraph.createNode(id)
      node.pos = [100, 200]
      app.graph.add(node)
      app.canvas.ds.scale = 1
      app.canvas.ds.offset = [400, 50]
      app.canvas.setDirty(true, true)
    }""",
        [EMPTY_GRAPH, node_id],
    )
    page.wait_for_timeout(300)
    x, y = page.evaluate("""() => {
      const [node] = app.graph.nodes
      const box = app.canvas.canvas.getBoundingClientRect()
      const [x, y] = app.canvas.ds.convertOffsetToCanvas([node.pos[0] + 80, node.pos[1] - 15])
      return [box.left + x, box.top + y]
    }""")
    page.mouse.click(x, y)
    page.locator(INFO_BUTTON).click()
    panel = page.locator(HELP_PANEL)
    panel.locator("table").first.wait_for()
    return panel


def check_help(page: Page, language: str) -> None:
    panel = open_help(page, "MizuotoSpeak")
    texts = json.loads((ROOT / "locales" / language / "nodeDefs.json").read_text(encoding="utf-8"))["MizuotoSpeak"]
    cells = panel.locator("td").all_inner_texts()
    for item in (*texts["inputs"].values(), *texts["outputs"].values()):
        assert item["name"] in cells
        assert item["tooltip"] in cells


def test_the_help_panel_shows_the_page(page: Page) -> None:
    check_help(page, "en")


def test_the_help_panel_speaks_chinese(chinese_page: Page) -> None:
    check_help(chinese_page, "zh")


def test_the_server_hands_out_the_help_pages(page: Page) -> None:
    """The editor fetches <Node>/<language>.md and falls back to <Node>.md, with a complaint in the console."""
    served = page.evaluate("""async () => {
      const text = async (path) => {
        const answer = await fetch(`/extensions/mizuoto/docs/${path}`)
        return [answer.status, await answer.text()]
      }
      return [await text('MizuotoSpeak/zh.md'), await text('MizuotoSpeak/en.md'), await text('MizuotoSpeak.md')]
    }""")
    docs = ROOT / "web" / "docs"
    assert served[0] == [200, (docs / "MizuotoSpeak" / "zh.md").read_text(encoding="utf-8")]
    assert served[1] == served[2] == [200, (docs / "MizuotoSpeak.md").read_text(encoding="utf-8")]


def test_the_console_says_nothing_of_the_pack(page: Page, editor: Editor) -> None:
    """From the page's opening on, in all tests of this file that share it."""
    load(page, "piper_speak")
    page.wait_for_timeout(500)
    lines = [f"{message.type} {message.text} {message.location.get('url', '')}" for message in editor.said]
    about_us = [line for line in lines if "mizuoto" in line.lower() and "api.comfy.org" not in line]
    assert [line for line in about_us if line.startswith(("error", "warning"))] == []
