"""Writes docs/pictures/*.jpg: the sidebar tab in each of its states, and a node's help, in both languages and themes.

Run by hand when the tab changes, inside .venv: python tests/workflows/record_panel.py
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, Route, sync_playwright  # noqa: E402

from devtools import browser, install  # noqa: E402
from devtools.client import ComfyClient  # noqa: E402
from devtools.comfyui import ComfyServer, prepare_base  # noqa: E402
from devtools.voice import FOLDER, packaged_voice, place_voice  # noqa: E402
from mizuoto_runtime.engines.piper.catalog import VARIANTS  # noqa: E402
from tests.nodes import prompts  # noqa: E402
from tests.nodes.http_api import MB, PIPER, Api  # noqa: E402
from tests.test_fetch import Server, handler  # noqa: E402
from tests.workflows.tab import Tab  # noqa: E402
from tests.workflows.test_editor import open_help  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
LOOKS = [("en", "dark"), ("en", "light"), ("zh", "dark"), ("zh", "light")]
PROBLEM = "setting compute.max_resident_models (mizuoto.toml) is 'many'; it must be a whole number"
ABSENT = "piper:de_DE-thorsten-medium"
JPEG_QUALITY = 70
HELP: Any = {"x": 0, "y": 75, "width": 520, "height": 680}
SHEET = """
<body style="margin: 0; display: inline-flex; gap: 12px; padding: 12px; background: #808080; align-items: start">
{}</body>
"""


@contextmanager
def slow_hub() -> Iterator[Server]:
    """A hub that sends a third of the demo's voice, and has nothing else."""
    variant = next(variant for variant in VARIANTS if variant.id == prompts.VOICE)
    files = {f"/{file.url}": (packaged_voice().parent / file.path).read_bytes() for file in variant.files}
    held = Server("", files, hold_after={path: 20 * MB for path in files if path.endswith(".onnx")})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler(held))
    held.endpoint = f"http://127.0.0.1:{http.server_port}"
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield held
    held.go_on.set()
    http.shutdown()


def look(chromium: Browser, client: ComfyClient, language: str, theme: str) -> Tab:
    return Tab(chromium, client, **{"Comfy.Locale": language, "Comfy.ColorPalette": theme})


def seen(page: Page, part: str = ".mizuoto-panel") -> bytes:
    """The tab as it is shown, or a part of it."""
    panel = page.locator(part)
    box = panel.bounding_box()
    assert box is not None
    left, top = max(0, box["x"] - 14), max(0, box["y"] - 14)
    clip = {"x": left, "y": top, "width": box["width"] + 28, "height": min(box["height"] + 28, 1390 - top)}
    return page.screenshot(clip=clip)  # type: ignore[arg-type]


def with_answer(tab: Tab, answer: dict[str, Any] | None) -> bytes:
    """What is seen while the server answers so, or not yet."""

    def handle(route: Route) -> None:
        if answer is not None:
            route.fulfill(**answer)

    tab.page.route("**/mizuoto/v1/runtime", handle)
    for _ in range(2):
        tab.toggle()
    tab.page.wait_for_selector(".mizuoto-state")
    tab.page.wait_for_timeout(400)
    picture = seen(tab.page)
    tab.page.unroute("**/mizuoto/v1/runtime")
    return picture


def save(chromium: Browser, name: str, pictures: list[bytes]) -> None:
    """The pictures side by side."""
    images = (f'<img src="data:image/png;base64,{base64.b64encode(each).decode()}">\n' for each in pictures)
    page = chromium.new_page(viewport={"width": 400, "height": 300})
    page.set_content(SHEET.format("".join(images)))
    page.locator("body").screenshot(path=PICTURES / f"{name}.jpg", type="jpeg", quality=JPEG_QUALITY)
    page.close()


def help_picture(tab: Tab) -> bytes:
    tab.page.set_viewport_size({"width": 1280, "height": 900})
    tab.toggle()
    open_help(tab.page, "MizuotoSpeak")
    tab.page.wait_for_timeout(600)
    return tab.page.screenshot(clip=HELP)


def record(chromium: Browser, server: ComfyServer, hub: Server) -> None:
    client, api = ComfyClient(server.url), Api(server.url)
    tabs = [look(chromium, client, *each) for each in LOOKS]
    for tab in tabs:
        tab.page.set_viewport_size({"width": 1280, "height": 1400})
    save(chromium, "panel_empty", [seen(tab.page) for tab in tabs])
    save(chromium, "panel_loading", [with_answer(tab, None) for tab in tabs])
    body = json.dumps({"error": {"type": "InputError", "message": PROBLEM}})
    answer = {"status": 400, "body": body, "content_type": "application/json"}
    save(chromium, "panel_error", [with_answer(tab, answer) for tab in tabs])
    api.send("PATCH", "/settings", {"compute.vram_limit_mb": 48, "fetch.endpoint": hub.endpoint})
    client.run(prompts.speak("Dummy", "Hello."))
    client.run(prompts.speak("Piper", "Hello."))
    api.send("POST", f"/models/{PIPER}/pin")
    for tab in tabs:
        tab.show_anew()
        tab.page.wait_for_selector(f'[data-model="{PIPER}"]')
        tab.page.wait_for_timeout(500)
    save(chromium, "panel_full", [seen(tab.page) for tab in tabs])
    shutil.rmtree(server.base / FOLDER)  # what was loaded stays so
    for model_id in (ABSENT, PIPER):
        api.send("POST", f"/models/{model_id}/fetch", {})
    for tab in tabs:
        tab.page.wait_for_selector(f'[data-download="{PIPER}"] [aria-valuenow="33"]')
        tab.page.evaluate("window.app.extensionManager.toast.removeAll()")
        tab.page.wait_for_timeout(500)
    save(chromium, "panel_downloads", [seen(tab.page, ".mizuoto-arriving") for tab in tabs])
    save(chromium, "help", [help_picture(tab) for tab in tabs])


def main() -> None:
    tree = install.ensure(None, test_tools=True)
    executable = browser.find()
    assert executable is not None, browser.ADVICE
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, slow_hub() as hub:
        base = prepare_base(Path(folder))
        place_voice(base)
        environment = {"MIZUOTO_COMPUTE__SIMULATE_VRAM_MB": "256", "HF_ENDPOINT": ""}
        with ComfyServer(tree, base, env=environment) as server:
            chromium = playwright.chromium.launch(**browser.launch_options(executable))
            record(chromium, server, hub)
            chromium.close()


if __name__ == "__main__":
    main()
