"""What the open pages are told, when, and that nothing fails if they can't be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.asynchronous import finished

Told = list[tuple[str, dict[str, Any]]]


class Server:
    """ComfyUI's server as far as pages need it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop
        self.told: Told = []

    def send_sync(self, event: str, content: dict[str, Any]) -> None:
        self.told.append((event, content))


class Deaf(Server):
    def send_sync(self, event: str, content: dict[str, Any]) -> None:
        raise RuntimeError("the loop is closed")


@pytest.fixture
def pages(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("nodes.pages")


def test_while_a_prompt_runs_little_is_told_and_at_its_end_all(pages: ModuleType) -> None:
    server = Server()
    teller = pages.Pages(lambda: server, lambda: {"models": []})
    for _ in range(5):
        teller.while_it_runs()
    assert server.told == [("mizuoto.runtime", {"models": []})]
    teller.held()
    assert len(server.told) == 2


def test_many_changes_at_once_are_told_once_and_as_they_are_then(pages: ModuleType) -> None:
    held = {"bytes": 3}

    async def changes() -> Told:
        server = Server(asyncio.get_running_loop())
        teller = pages.Pages(lambda: server, lambda: dict(held))
        for size_bytes in (2, 1, 0):
            held["bytes"] = size_bytes
            await asyncio.to_thread(teller.soon)
        assert server.told == [], "whoever frees memory waits for nobody"
        await asyncio.sleep(3 * pages.SOON_S)
        teller.soon()
        await asyncio.sleep(3 * pages.SOON_S)
        return server.told

    assert finished(changes()) == 2 * [("mizuoto.runtime", {"bytes": 0})]


def test_before_anything_was_loaded_and_without_a_server_nothing_is_told(pages: ModuleType) -> None:
    server = Server()
    pages.Pages(lambda: server, lambda: None).held()
    teller = pages.Pages(lambda: None, lambda: pytest.fail("nobody is there to be told"))
    for tell in (teller.held, teller.soon, teller.settings, teller.while_it_runs):
        tell()
    assert server.told == []


@pytest.mark.parametrize("name", ["held", "while_it_runs", "settings", "soon"])
def test_pages_that_cannot_be_told_fail_no_run(pages: ModuleType, name: str) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    getattr(pages.Pages(lambda: Deaf(loop), dict), name)()


def test_a_download_is_told_of_a_few_times_a_second_and_always_of_its_end(pages: ModuleType) -> None:
    async def downloads(*states: tuple[str, int]) -> list[tuple[str, int]]:
        server = Server(asyncio.get_running_loop())
        teller = pages.Pages(lambda: server, lambda: None)
        for state, done_bytes in states:
            facts = {"id": "e:m", "state": state, "done_bytes": done_bytes, "total_bytes": 9, "message": ""}
            await asyncio.to_thread(teller.download, facts)
        await asyncio.sleep(2 * pages.INTERVAL_S)
        return [(facts["state"], facts["done_bytes"]) for _, facts in server.told]

    progress = [("running", done) for done in range(1, 9)]
    begun = [("waiting", 0), ("running", 0)]
    assert finished(downloads(*begun, *progress, ("done", 9))) == [*begun, ("done", 9)]
    assert finished(downloads(*begun, *progress)) == [*begun, ("running", 8)], "nothing more comes"
