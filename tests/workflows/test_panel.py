"""The sidebar tab in ComfyUI's own page: the truth before, during and after a run, and what its buttons do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer
from tests.nodes import prompts
from tests.nodes.http_api import LONG, MB, PIPER, Api
from tests.workflows.tab import Tab
from tests.workflows.test_editor import load

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

pytestmark = [pytest.mark.server, pytest.mark.browser]

CARD = f'[data-model="{PIPER}"]'
SHARES = ("application", "own", "other", "free")
PARTS = ("loaded", "streamed", "host")


@pytest.fixture
def comfy(simulated: ComfyServer) -> ComfyClient:
    return ComfyClient(simulated.url)


@pytest.fixture
def api(simulated: ComfyServer) -> Api:
    made = Api(simulated.url)
    made.reset()
    return made


@pytest.fixture(scope="module")
def tab(browser: Browser, simulated: ComfyServer) -> Iterator[Tab]:
    """The page that this file's tests share."""
    made = Tab(browser, ComfyClient(simulated.url))
    yield made
    made.page.close()


@pytest.fixture
def page(tab: Tab, api: Api) -> Iterator[Page]:
    """The shared page, on a server that holds nothing; its console may say nothing."""
    tab.show_anew()
    yield tab.page
    assert tab.complaints == []


@pytest.fixture(scope="module")
def chinese(browser: Browser, simulated: ComfyServer) -> Iterator[Tab]:
    """Another page of the same server, in Chinese and light."""
    settings = {"Comfy.Locale": "zh", "Comfy.ColorPalette": "light"}
    made = Tab(browser, ComfyClient(simulated.url), **settings)
    yield made
    made.page.close()


def slices(bar: Locator, names: tuple[str, ...]) -> dict[str, int]:
    return {name: int(bar.locator(f".mizuoto-{name}").get_attribute("data-bytes") or -1) for name in names}


def test_an_empty_server_says_so(page: Page) -> None:
    text = page.inner_text(".mizuoto-panel")
    assert "No speech model is loaded" in text
    assert slices(page.locator(".mizuoto-bar").first, SHARES) == {
        "application": 0, "own": 0, "other": 0, "free": 256 * MB,
    }  # fmt: skip
    assert "VRAM mode\nnormal as ComfyUI has it" in text
    assert "KV cache\ndynamic default" in text


def test_the_panel_shows_a_streamed_run_while_it_runs_and_afterwards(
    page: Page, api: Api, comfy: ComfyClient
) -> None:
    api.send("PATCH", "/settings", {"compute.vram_mode": "none"})
    prompt_id = comfy.queue(prompts.speak("Piper", LONG, seed=41))
    streamed = f'{CARD}[data-busy="true"] .mizuoto-streamed:not([data-bytes="0"])'
    page.wait_for_selector(streamed, timeout=60_000)
    assert page.locator(f'{CARD} [data-action="unload"]').is_disabled()
    comfy.interrupt(prompt_id)
    page.wait_for_selector(f'{CARD}[data-busy="false"]', timeout=60_000)
    comfy.run(prompts.speak("Piper", "Hello.", seed=42))
    page.wait_for_selector(f'{CARD}[data-busy="false"]')
    (model,) = api.get("/runtime")["models"]
    bars = page.locator(f"{CARD} .mizuoto-bar").all()
    shown = {(bar.get_attribute("aria-label") or "").split(":")[0]: slices(bar, PARTS) for bar in bars}
    assert shown == {
        part["name"]: {name: part[f"{name}_bytes"] for name in PARTS} for part in model["components"]
    }


def stored(page: Page, name: str) -> object:
    return page.evaluate("(id) => window.app.extensionManager.setting.get(id)", f"Mizuoto.setting.{name}")


def choose(page: Page, name: str, value: object) -> None:
    """What a change in ComfyUI's dialog does."""
    put = "([id, value]) => window.app.extensionManager.setting.set(id, value)"
    page.evaluate(put, [f"Mizuoto.setting.{name}", value])


def test_the_dialog_shows_and_changes_what_the_server_has(page: Page, api: Api) -> None:
    assert (stored(page, "compute.vram_mode"), stored(page, "compute.vram_reserve_mb")) == ("auto", "")
    for name, value, sent in (
        ("compute.vram_mode", "low", "low"),
        ("compute.vram_reserve_mb", " 512 ", 512),
        ("compute.oom_retry", False, False),
        ("compute.vram_limit_mb", 128, 128),
        ("engines.piper.pinned_models", f"{prompts.VOICE}, ", [prompts.VOICE]),
        ("fetch.endpoint", " https://mirror.example/hub/ ", "https://mirror.example/hub"),
        ("fetch.endpoint", "", "https://huggingface.co"),
    ):
        with page.expect_response(lambda answer: answer.request.method == "PATCH"):
            choose(page, name, value)
        assert {item["name"]: item["value"] for item in api.get("/settings")["settings"]}[name] == sent


def test_the_dialog_puts_back_what_the_server_refuses(page: Page, api: Api) -> None:
    for name, value, why, back in (
        ("compute.vram_reserve_mb", "much", "must be a whole number, or empty", ""),
        ("fetch.endpoint", "mirror.example", "must be an https or http address", "https://huggingface.co"),
    ):
        choose(page, name, value)
        page.wait_for_function(f"document.querySelector('.p-toast')?.innerText.includes({why!r})")
        until(page, name, back)
    assert api.saved() == []


def until(page: Page, name: str, value: object) -> None:
    """Until the dialog shows that value."""
    is_shown = "([id, value]) => window.app?.extensionManager?.setting.get(id) === value"
    page.wait_for_function(is_shown, arg=[f"Mizuoto.setting.{name}", value])


def test_a_value_changed_elsewhere_is_shown_at_once_and_after_a_reload(page: Page, tab: Tab, api: Api) -> None:
    api.send("PATCH", "/settings", {"compute.kv_cache": "static"})
    until(page, "compute.kv_cache", "static")
    page.wait_for_function("document.querySelector('.mizuoto-policy').innerText.includes('static set here')")
    page.reload()
    until(page, "compute.kv_cache", "static")
    assert api.saved() == ["compute.kv_cache"]
    tab.ready()
    api.reset()
    until(page, "compute.kv_cache", "dynamic")


def test_two_pages_that_change_settings_at_once_show_the_same_in_the_end(
    page: Page, chinese: Tab, comfy: ComfyClient, api: Api
) -> None:
    pages = (page, chinese.page)
    set_value = "window.app.extensionManager.setting.set"
    for limit, one in zip((64, 128), pages, strict=True):
        one.evaluate(
            f"(limit) => {{ {set_value}('Mizuoto.setting.compute.vram_limit_mb', limit);"
            f" {set_value}('Mizuoto.setting.compute.' + (limit === 64 ? 'kv_cache' : 'host_copies'),"
            " limit === 64 ? 'static' : 'on') }",
            limit,
        )
    for one in pages:
        until(one, "compute.kv_cache", "static")
        until(one, "compute.host_copies", "on")
    settings = {item["name"]: item["value"] for item in api.get("/settings")["settings"]}
    assert settings["compute.vram_limit_mb"] in (64, 128)
    for one in pages:
        until(one, "compute.vram_limit_mb", settings["compute.vram_limit_mb"])
        limit = f"\n{settings['compute.vram_limit_mb']} MB "
        one.wait_for_function("(text) => document.querySelector('.mizuoto-policy').innerText.includes(text)", arg=limit)
    comfy.run(prompts.speak("Piper", "Hello.", seed=46))
    for one in pages:
        one.wait_for_selector(CARD)
    page.click(f'{CARD} [data-action="unload"]')
    chinese.page.wait_for_selector(CARD, state="detached")
    assert chinese.complaints == []


COLOURS = """() => {
  const brightness = (colour) => {
    const dot = document.createElement('canvas').getContext('2d')
    dot.fillStyle = colour
    dot.fillRect(0, 0, 1, 1)
    return Math.max(...dot.getImageData(0, 0, 1, 1).data.slice(0, 3))
  }
  const panel = document.querySelector('.mizuoto-panel')
  let behind = panel
  while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement
  return { text: brightness(getComputedStyle(panel).color), back: brightness(getComputedStyle(behind).backgroundColor) }
}"""
SPEAK = "app.graph.nodes.find((node) => node.type === 'MizuotoSpeak')"


def badge_texts(page: Page) -> list[str]:
    return page.evaluate(f"{SPEAK}.badges.map((one) => (typeof one === 'function' ? one() : one).text)")


def test_a_node_shows_what_its_run_took_and_what_would_help(page: Page, api: Api) -> None:
    load(page, "piper_speak")
    page.evaluate(f"{SPEAK}.widgets.find((one) => one.name === 'text').value = 'Hello.'")
    for seed, (mode, wanted) in enumerate((("auto", "MB peak"), ("none", "streamed: the VRAM mode says so"))):
        api.send("PATCH", "/settings", {"compute.vram_mode": mode})
        page.evaluate(f"(seed) => {{ {SPEAK}.widgets.find((one) => one.name === 'seed').value = seed }}", seed)
        page.evaluate("app.queuePrompt(0)")
        shown = f"(wanted) => {SPEAK}.badges.some((one) => (one.text ?? '').includes(wanted))"
        page.wait_for_function(shown, arg=wanted, timeout=60_000)
        (text,) = [text for text in badge_texts(page) if "RTF" in text]
        assert re.fullmatch(r"\d+\.\d s · RTF \d+\.\d\d · \d+ MB peak( · streamed.*)?", text)
        assert ("streamed" in text) is (mode == "none")


def test_a_node_inside_a_subgraph_has_its_badge_too(page: Page, api: Api) -> None:
    load(page, "piper_speak")
    page.evaluate(f"""() => {{
      const speak = {SPEAK}
      speak.widgets.find((one) => one.name === 'text').value = 'Hi.'
      app.graph.convertToSubgraph(new Set([speak]))
    }}""")
    page.evaluate("app.queuePrompt(0)")
    inner = "app.graph.nodes.find((node) => node.subgraph)?.subgraph.nodes[0]"
    page.wait_for_function(f"{inner}?.badges.some((one) => (one.text ?? '').includes('RTF'))", timeout=60_000)


def test_buttons_move_and_let_go(page: Page, api: Api, comfy: ComfyClient) -> None:
    comfy.run(prompts.speak("Piper", "Hello.", seed=43))
    page.wait_for_selector(CARD)
    assert re.match(r"60 MB · cpu · idle since \d+:\d\d", page.inner_text(f"{CARD} .mizuoto-quiet"))
    page.click(f'{CARD} [data-action="pin"]')
    page.wait_for_selector(f'{CARD} [data-action="unpin"]')
    assert page.inner_text(f"{CARD} .mizuoto-quiet").endswith(" · pinned")
    assert api.models()[PIPER]["pinned"]
    assert page.evaluate("document.activeElement.dataset.action") == "unpin", "the keyboard stays where it was"
    page.click(f'{CARD} [data-action="offload"]')
    page.wait_for_function("document.querySelector('.mizuoto-own').dataset.bytes === '0'")
    assert api.models()[PIPER]["host_bytes"] == api.models()[PIPER]["size_bytes"]
    page.keyboard.press("Tab")
    page.focus(f'{CARD} [data-action="unload"]')
    page.keyboard.press("Enter")
    page.wait_for_selector(CARD, state="detached")
    assert api.models() == {}


def test_a_refusal_is_shown(page: Page, api: Api, comfy: ComfyClient) -> None:
    comfy.run(prompts.speak("Piper", "Hello.", seed=44))
    page.wait_for_selector(CARD)

    def overtaken(route: Route) -> None:
        api.send("POST", f"/models/{PIPER}/unload")
        route.continue_()

    page.route("**/unload", overtaken)
    page.click(f'{CARD} [data-action="unload"]')
    page.wait_for_selector(".mizuoto-notice:not(:empty)")
    page.unroute("**/unload")
    assert f"{PIPER} isn't loaded" in page.inner_text(".mizuoto-notice")


def test_a_server_that_does_not_answer_is_told_and_asked_again(page: Page, tab: Tab) -> None:
    answer = {"status": 500, "body": json.dumps({"error": {"type": "X", "message": "no <b>device</b>"}})}
    page.route("**/mizuoto/v1/runtime", lambda route: route.fulfill(**answer, content_type="application/json"))
    for _ in range(2):
        tab.toggle()
    page.wait_for_selector(".mizuoto-error")
    assert "no <b>device</b>" in page.inner_text(".mizuoto-state"), "texts are never read as HTML"
    assert "can't say what is held" in page.inner_text(".mizuoto-state")
    page.unroute("**/mizuoto/v1/runtime")
    page.route("**/mizuoto/v1/runtime", lambda route: route.abort())
    page.click(".mizuoto-button")
    page.wait_for_function("document.querySelector('.mizuoto-state')?.innerText.includes(\"ComfyUI doesn't answer\")")
    page.unroute("**/mizuoto/v1/runtime")
    page.focus(".mizuoto-button")
    page.keyboard.press("Enter")
    page.wait_for_selector(".mizuoto-section")


def test_settings_that_cannot_be_read_are_told(page: Page, tab: Tab) -> None:
    body = {"error": {"type": "InputError", "message": "mizuoto.toml isn't valid TOML"}}
    page.route("**/mizuoto/v1/settings", lambda route: route.fulfill(status=400, json=body))
    page.reload()
    page.wait_for_function("document.querySelector('.p-toast')?.innerText.includes(\"isn't valid TOML\")")
    page.unroute("**/mizuoto/v1/settings")
    page.reload()
    tab.ready()


def test_an_answer_that_something_newer_overtook_is_not_shown(page: Page, tab: Tab, comfy: ComfyClient) -> None:
    """The panel asks; before the answer arrives, the server tells of a run."""
    held: list[Route] = []
    page.route("**/mizuoto/v1/runtime", lambda route: held.append(route))
    for _ in range(2):
        tab.toggle()
    page.wait_for_selector(".mizuoto-waiting")
    while not held:
        page.wait_for_timeout(20)
    before = held[0].fetch()
    comfy.run(prompts.speak("Piper", "Hello.", seed=47))
    page.wait_for_selector(CARD)
    with page.expect_response("**/mizuoto/v1/runtime"):
        held[0].fulfill(response=before)
    page.wait_for_timeout(200)
    assert page.locator(CARD).count() == 1
    page.unroute("**/mizuoto/v1/runtime")


def test_a_click_under_way_survives_what_the_server_tells(page: Page, api: Api, comfy: ComfyClient) -> None:
    comfy.run(prompts.speak("Piper", "Hello.", seed=48))
    page.hover(f'{CARD} [data-action="pin"]')
    page.mouse.down()
    api.send("PATCH", "/settings", {"compute.vram_limit_mb": 200})
    page.wait_for_function("document.querySelector('.mizuoto-policy').innerText.includes('200 MB')")
    page.mouse.up()
    page.wait_for_selector(f'{CARD} [data-action="unpin"]')


def test_a_lost_connection_is_told(page: Page) -> None:
    page.evaluate("window.app.api.dispatchEvent(new CustomEvent('reconnecting'))")
    assert "connection to the server was lost" in page.inner_text(".mizuoto-notice")
    page.evaluate("window.app.api.dispatchEvent(new CustomEvent('reconnected'))")
    page.wait_for_selector(".mizuoto-notice:empty", state="attached")


def shown_in_the_dialog(page: Page) -> list[str]:
    """Headings and names of the settings, as ComfyUI's dialog shows them."""
    page.evaluate("window.app.extensionManager.command.execute('Comfy.ShowSettingsDialog')")
    dialog = page.locator("[role=dialog]")
    dialog.get_by_text("Mizuoto", exact=True).first.click()
    page.wait_for_function("document.querySelector('[role=dialog]').innerText.includes('KV')")
    lines = [line.strip() for line in dialog.inner_text().splitlines()]
    locked = dialog.locator(".p-disabled, input:disabled").count()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert locked >= 4, "what the environment sets, and what is read at the start"
    return lines


def test_the_dialog_speaks_the_pages_language(page: Page, chinese: Tab) -> None:
    english, translated = shown_in_the_dialog(page), shown_in_the_dialog(chinese.page)
    for one, other in (("Memory", "内存与显存"), ("VRAM mode", "显存模式"), ("KV cache", "KV 缓存")):
        assert one in english and other not in english
        assert other in translated and one not in translated
    assert english.index("VRAM mode") < english.index("KV cache"), "in the order of the documentation"


def test_chinese_and_light(page: Page, chinese: Tab, comfy: ComfyClient) -> None:
    comfy.run(prompts.speak("Piper", "Hello.", seed=49))
    shown = {}
    for name, one, wanted in (("dark", page, "Policy in force"), ("light", chinese.page, "当前策略")):
        one.wait_for_selector(CARD)
        assert wanted in one.inner_text(".mizuoto-panel")
        shown[name] = one.evaluate(COLOURS)
    assert chinese.complaints == []
    assert shown["dark"]["text"] > shown["dark"]["back"] + 90 and shown["light"]["text"] < shown["light"]["back"] - 90
