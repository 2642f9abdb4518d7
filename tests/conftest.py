"""Fixtures that every test shares: the pack as ComfyUI loads it, one ComfyUI server for the suite, one browser."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from devtools import browser as chromium
from devtools.comfyui import ComfyServer, prepare_base
from devtools.tree import Tree, find_tree
from devtools.voice import place_voice

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

    from devtools.client import ComfyClient

ROOT = Path(__file__).resolve().parent.parent
PACK_NAME = "pack_under_test"
VIEWPORT = {"width": 1280, "height": 720}
EDITOR_READY = "!!window.app?.vueAppReady && !!window.LiteGraph?.registered_node_types.MizuotoSpeak"
EMPTY_GRAPH = {
    "last_node_id": 0,
    "last_link_id": 0,
    "nodes": [],
    "links": [],
    "groups": [],
    "config": {},
    "extra": {},
    "version": 0.4,
}


@pytest.fixture(scope="session")
def pack() -> ModuleType:
    """The root package, loaded from its folder under a name of its own, as ComfyUI does."""
    if PACK_NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(PACK_NAME, ROOT / "__init__.py")
        assert spec is not None and spec.loader is not None
        sys.modules[PACK_NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACK_NAME])
    return sys.modules[PACK_NAME]


@pytest.fixture(scope="session")
def pack_module(pack: ModuleType) -> Callable[[str], ModuleType]:
    """Imports a module of the pack: pack_module("nodes.declare")."""
    return lambda name: importlib.import_module(f"{pack.__name__}.{name}")


@pytest.fixture(scope="session")
def tree() -> Tree:
    """The ComfyUI under test: $COMFYUI_PATH, else the embedded one."""
    return find_tree(None)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ComfyUI base directory with the pack, the demo's voice, and tiny random models of the other engines."""
    from tests.golden.f5tts.checkpoint import install as place_f5tts
    from tests.golden.omnivoice.checkpoint import install as place_omnivoice
    from tests.golden.qwen3tts.placed import place_models
    from tests.golden.voxcpm.checkpoint import install as place_voxcpm

    folder = prepare_base(tmp_path_factory.mktemp("comfyui"))
    place_voice(folder)
    place_models(folder)
    place_f5tts(folder)
    place_voxcpm(folder)
    place_omnivoice(folder)
    return folder


@pytest.fixture(scope="session")
def server(tree: Tree, base: Path) -> Iterator[ComfyServer]:
    """One running server for all tests."""
    with ComfyServer(tree, base) as running:
        yield running


@pytest.fixture(scope="session")
def simulated(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    """A running server whose runtime plays a device of 256 MB; the environment sets one more of its settings."""
    base = prepare_base(tmp_path_factory.mktemp("simulated"))
    place_voice(base)
    environment = {"MIZUOTO_COMPUTE__SIMULATE_VRAM_MB": "256", "MIZUOTO_COMPUTE__GPU_JOBS": "1", "HF_ENDPOINT": ""}
    with ComfyServer(tree, base, env=environment) as running:
        yield running


@pytest.fixture
def client(server: ComfyServer) -> ComfyClient:
    """A client of the server, which must be alive before and after the test."""
    from devtools.client import ComfyClient

    server.check()
    return ComfyClient(server.url)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    if os.environ.get("MIZUOTO_NO_BROWSER"):
        pytest.skip("no Chromium can be had on this machine")
    from playwright.sync_api import sync_playwright

    executable = chromium.find()
    assert executable is not None, f"no Chromium found. {chromium.ADVICE}"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(**chromium.launch_options(executable))
        yield launched
        launched.close()


@dataclass(frozen=True)
class Editor:
    """ComfyUI's own page, and what its console has said since it was opened."""

    page: Page
    said: list[ConsoleMessage]


@pytest.fixture(scope="module")
def editor(browser: Browser, server: ComfyServer) -> Iterator[Editor]:
    """The page that a file's tests share."""
    from devtools.client import ComfyClient

    ComfyClient(server.url).post_json("/settings", {"Comfy.TutorialCompleted": True, "Comfy.Locale": "en"})
    opened = browser.new_page(viewport=VIEWPORT)
    said: list[ConsoleMessage] = []
    opened.on("console", lambda message: said.append(message))
    opened.goto(server.url)
    opened.wait_for_function(EDITOR_READY)
    yield Editor(opened, said)
    opened.close()


@pytest.fixture
def page(editor: Editor, client: ComfyClient) -> Page:
    """ComfyUI's own page, ready, with an empty graph and without messages."""
    editor.page.evaluate("window.app.extensionManager.toast.removeAll()")
    editor.page.evaluate("async (graph) => { await window.app.loadGraphData(graph) }", EMPTY_GRAPH)
    return editor.page
