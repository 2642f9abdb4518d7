"""The sidebar tab in ComfyUI's own page: the truth before, during and after a run, and what its buttons do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer, prepare_base
from devtools.tree import Tree
from devtools.voice import place_voice
from tests.conftest import EDITOR_READY, EMPTY_GRAPH
from tests.nodes import prompts
from tests.nodes.test_http import LONG, MB, PIPER, Api
from tests.workflows.test_editor import load

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

pytestmark = [pytest.mark.server, pytest.mark.browser]

CARD = f'[data-model="{PIPER}"]'
SHARES = ("application", "own", "other", "free")
PARTS = ("loaded", "streamed", "host")
SETTINGS_READY = "window.app.extensionManager.setting.get('Mizuoto.engines.piper.pinned_models') !== undefined"


@pytest.fixture(scope="module")
def simulated(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    base = prepare_base(tmp_path_factory.mktemp("panel"))
    place_voice(base)
    with ComfyServer(tree, base, env={"MIZUOTO_COMPUTE__SIMULATE_VRAM_MB": "256"}) as running:
        yield running


@pytest.fixture
def comfy(simulated: ComfyServer) -> ComfyClient:
    return ComfyClient(simulated.url)


@pytest.fixture
def api(simulated: ComfyServer) -> Api:
    made = Api(simulated.url)
    made.reset()
    return made


@pytest.fixture
def complaints() -> list[str]:
    """What the page's console said of this pack."""
    return []


def is_about_us(message: ConsoleMessage) -> bool:
    """But for answers that the page shows anyway, and an outside service that ComfyUI itself asks about nodes."""
    url = str(message.location.get("url", ""))
    is_a_refusal = message.text.startswith("Failed to load resource") and "/mizuoto/v1/" in url
    line = f"{message.text} {url}"
    return "mizuoto" in line.lower() and "api.comfy.org" not in line and not is_a_refusal


def opened(browser: Browser, comfy: ComfyClient, complaints: list[str], **settings: object) -> Page:
    comfy.post_json("/settings", {"Comfy.TutorialCompleted": True, "Comfy.Locale": "en", **settings})
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: complaints.append(message.text) if is_about_us(message) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(comfy.url)
    page.wait_for_function(EDITOR_READY)
    page.evaluate("async (graph) => { await window.app.loadGraphData(graph) }", EMPTY_GRAPH)
    page.evaluate("window.app.extensionManager.sidebarTab.toggleSidebarTab('mizuoto')")
    page.wait_for_selector(".mizuoto-section")
    return page


@pytest.fixture
def page(browser: Browser, comfy: ComfyClient, api: Api, complaints: list[str]) -> Iterator[Page]:
    made = opened(browser, comfy, complaints)
    yield made
    made.close()
    assert complaints == []


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
    return page.evaluate("(id) => window.app.extensionManager.setting.get(id)", f"Mizuoto.{name}")


def choose(page: Page, name: str, value: object) -> None:
    """What a change in ComfyUI's dialog does."""
    page.evaluate("([id, value]) => window.app.extensionManager.setting.set(id, value)", [f"Mizuoto.{name}", value])


def test_the_dialog_shows_and_changes_what_the_server_has(page: Page, api: Api) -> None:
    page.wait_for_function(SETTINGS_READY)
    assert (stored(page, "compute.vram_mode"), stored(page, "compute.vram_reserve_mb")) == ("auto", "")
    for name, value, sent in (
        ("compute.vram_mode", "low", "low"),
        ("compute.vram_reserve_mb", " 512 ", 512),
        ("compute.oom_retry", False, False),
        ("compute.vram_limit_mb", 128, 128),
        ("engines.piper.pinned_models", f"{prompts.VOICE}, ", [prompts.VOICE]),
    ):
        with page.expect_response("**/mizuoto/v1/settings"):
            choose(page, name, value)
        assert {item["name"]: item["value"] for item in api.get("/settings")["settings"]}[name] == sent


def test_the_dialog_puts_back_what_the_server_refuses(page: Page, api: Api) -> None:
    page.wait_for_function(SETTINGS_READY)
    choose(page, "compute.vram_reserve_mb", "much")
    page.wait_for_selector(".p-toast-message-error")
    assert "must be a whole number, or empty" in page.inner_text(".p-toast-message-error")
    page.wait_for_function("window.app.extensionManager.setting.get('Mizuoto.compute.vram_reserve_mb') === ''")
    assert api.saved() == []


def test_a_value_changed_elsewhere_is_shown_after_a_reload(page: Page, api: Api) -> None:
    api.send("PATCH", "/settings", {"compute.kv_cache": "static"})
    page.reload()
    page.wait_for_function("window.app?.extensionManager?.setting.get('Mizuoto.compute.kv_cache') === 'static'")
    assert api.saved() == ["compute.kv_cache"]


SPEAK = "app.graph.nodes.find((node) => node.type === 'MizuotoSpeak')"


def badge_texts(page: Page) -> list[str]:
    return page.evaluate(f"{SPEAK}.badges.map((one) => (typeof one === 'function' ? one() : one).text)")


def test_a_node_shows_what_its_run_took_and_what_would_help(page: Page, api: Api) -> None:
    load(page, "piper_speak")
    for seed, (mode, wanted) in enumerate((("auto", "MB peak"), ("none", "streamed: the VRAM mode says so"))):
        api.send("PATCH", "/settings", {"compute.vram_mode": mode})
        page.evaluate(f"(seed) => {{ {SPEAK}.widgets.find((one) => one.name === 'seed').value = seed }}", seed)
        page.evaluate("app.queuePrompt(0)")
        shown = f"(wanted) => {SPEAK}.badges.some((one) => (one.text ?? '').includes(wanted))"
        page.wait_for_function(shown, arg=wanted, timeout=60_000)
        (text,) = [text for text in badge_texts(page) if "RTF" in text]
        assert re.fullmatch(r"\d+\.\d s · RTF \d+\.\d\d · \d+ MB peak( · streamed.*)?", text)
        assert ("streamed" in text) is (mode == "none")


def test_buttons_move_and_let_go(page: Page, api: Api, comfy: ComfyClient) -> None:
    comfy.run(prompts.speak("Piper", "Hello.", seed=43))
    page.wait_for_selector(CARD)
    page.click(f'{CARD} [data-action="pin"]')
    page.wait_for_selector(f'{CARD} [data-action="unpin"]')
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
    api.send("POST", f"/models/{PIPER}/unload")
    page.click(f'{CARD} [data-action="unload"]')
    page.wait_for_selector(".mizuoto-notice:not(:empty)")
    assert f"{PIPER} isn't loaded" in page.inner_text(".mizuoto-notice")


def test_a_server_that_does_not_answer_is_told_and_asked_again(
    browser: Browser, comfy: ComfyClient, api: Api, complaints: list[str]
) -> None:
    page = opened(browser, comfy, complaints)
    answer = {"status": 500, "body": json.dumps({"error": {"type": "X", "message": "no <b>device</b>"}})}
    page.route("**/mizuoto/v1/runtime", lambda route: route.fulfill(**answer, content_type="application/json"))
    page.evaluate("window.app.extensionManager.sidebarTab.toggleSidebarTab('mizuoto')")
    page.evaluate("window.app.extensionManager.sidebarTab.toggleSidebarTab('mizuoto')")
    page.wait_for_selector(".mizuoto-error")
    assert "no <b>device</b>" in page.inner_text(".mizuoto-error"), "texts are never read as HTML"
    page.unroute("**/mizuoto/v1/runtime")
    page.click(".mizuoto-button")
    page.wait_for_selector(".mizuoto-section")
    page.close()


@pytest.mark.parametrize(("locale", "theme"), [("en", "dark"), ("zh", "light")])
def test_languages_and_themes(
    browser: Browser, comfy: ComfyClient, api: Api, complaints: list[str], tmp_path: Path, locale: str, theme: str
) -> None:
    comfy.run(prompts.speak("Piper", "Hello.", seed=45 + len(theme)))
    page = opened(browser, comfy, complaints, **{"Comfy.Locale": locale, "Comfy.ColorPalette": theme})
    page.wait_for_selector(CARD)
    text = page.inner_text(".mizuoto-panel")
    assert ("Policy in force" if locale == "en" else "当前策略") in text
    colours: dict[str, Any] = page.evaluate(
        "() => { const style = getComputedStyle(document.querySelector('.mizuoto-panel'));"
        " return {text: style.color, back: getComputedStyle(document.body).getPropertyValue('--comfy-menu-bg')} }"
    )
    assert colours["text"] and colours["back"]
    page.screenshot(path=str(tmp_path / f"panel_{locale}_{theme}.png"))
    page.close()
    assert complaints == []
