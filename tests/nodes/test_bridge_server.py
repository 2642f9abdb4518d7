"""Many prompts on a real server that shares a device: nothing grows, and the books are true after each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from devtools.comfyui import ComfyServer
from devtools.tree import Tree
from tests.nodes.bridge import serving
from tests.workflows.tab import Tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform != "linux", reason="reads what the process holds from /proc"),
]

PROMPTS, WARM_UP = 24, 12
MOST_ENTRIES = 4
"""The picture's model, Piper's two components and Dummy's one."""
MOST_RSS_BYTES = 32 << 20
MOST_REQUESTS, LISTENING_MS = 30, 500
"""ComfyUI's worker sleeps through a request that comes while it tidies up after a prompt."""


@pytest.fixture(scope="module")
def running(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    with serving.server(tree, tmp_path_factory.mktemp("bridge")) as started:
        yield started


def test_nothing_grows_with_the_prompts(running: ComfyServer) -> None:
    growth = serving.run(running, PROMPTS, warm_up=WARM_UP)
    assert growth.entries <= MOST_ENTRIES
    assert growth.after.files <= growth.before.files + 1, "the client's own connection may not be closed yet"
    assert growth.after.threads <= growth.before.threads
    assert growth.after.rss_bytes - growth.before.rss_bytes < MOST_RSS_BYTES, growth


@pytest.mark.browser
def test_the_page_is_told_of_what_comfyui_takes(browser: Browser, running: ComfyServer) -> None:
    """By a picture's model during a prompt, and by "Free model and node cache" after it, without being asked."""
    visitor = serving.Visitor(running)
    tab = Tab(browser, visitor.client)
    own = "Number(document.querySelector('.mizuoto-own').dataset.bytes)"
    visitor.ask("piper", 1)
    tab.page.wait_for_function(f"{own} > 0")
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/runtime") else None)
    held_bytes = tab.page.evaluate(own)
    visitor.ask("picture", 1)
    tab.page.wait_for_function(f"{own} < {held_bytes}")
    tab.page.wait_for_function("Number(document.querySelector('.mizuoto-application').dataset.bytes) > 0")
    asked.clear()
    for _ in range(MOST_REQUESTS):
        visitor.client.free()
        tab.page.wait_for_timeout(LISTENING_MS)
        if tab.page.evaluate(f"{own} === 0"):
            break
    else:
        pytest.fail("ComfyUI frees nothing")
    tab.page.wait_for_function("Number(document.querySelector('.mizuoto-application').dataset.bytes) === 0")
    assert asked == [], "the server tells; nobody asks"
    tab.page.close()
    assert tab.complaints == []
