"""A page of ComfyUI's with the pack's sidebar tab open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devtools.client import ComfyClient
from tests.conftest import EDITOR_READY, EMPTY_GRAPH

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage

STANDARD = {"Comfy.Locale": "en", "Comfy.ColorPalette": "dark"}
SETTINGS_READY = "window.app.extensionManager.setting.get('Mizuoto.setting.engines.piper.pinned_models') !== undefined"


def is_about_us(message: ConsoleMessage) -> bool:
    """But for answers that the page shows anyway, and an outside service that ComfyUI itself asks about nodes."""
    url = str(message.location.get("url", ""))
    is_a_refusal = message.text.startswith("Failed to load resource") and "/mizuoto/v1/" in url
    line = f"{message.text} {url}"
    return "mizuoto" in line.lower() and "api.comfy.org" not in line and not is_a_refusal


class Tab:
    """A page of ComfyUI's with the sidebar tab open, and what its console says of this pack."""

    def __init__(self, browser: Browser, comfy: ComfyClient, **settings: object) -> None:
        comfy.post_json("/settings", {"Comfy.TutorialCompleted": True, **STANDARD, **settings})
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if is_about_us(said) else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(comfy.url)
        self.ready()
        comfy.post_json("/settings", STANDARD)

    def ready(self) -> None:
        self.page.wait_for_function(EDITOR_READY)
        self.page.evaluate("async (graph) => { await window.app.loadGraphData(graph) }", EMPTY_GRAPH)
        self.toggle()
        self.page.wait_for_selector(".mizuoto-section[data-part='policy']")
        self.page.wait_for_function(SETTINGS_READY)

    def toggle(self) -> None:
        self.page.evaluate("window.app.extensionManager.sidebarTab.toggleSidebarTab('mizuoto')")

    def show_anew(self) -> None:
        """The tab is opened again, with what the server has now."""
        self.page.evaluate("window.app.extensionManager.toast.removeAll()")
        for _ in range(2):
            self.toggle()
        self.page.wait_for_selector(".mizuoto-section[data-part='policy']")
