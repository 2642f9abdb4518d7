"""Fetching a model over HTTP and by the loader node's button, from a hub on this machine that can misbehave."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer, prepare_base
from devtools.tree import Tree
from devtools.voice import FOLDER, packaged_voice
from mizuoto_runtime.downloads import GOING_ON, DownloadFacts, Downloads
from mizuoto_runtime.engines.piper.catalog import VARIANTS
from mizuoto_runtime.errors import InputError
from mizuoto_runtime.types import ModelRef, Progress
from tests.conftest import EMPTY_GRAPH
from tests.nodes import prompts
from tests.nodes.http_api import MB, PIPER, Api
from tests.test_fetch import Server, handler
from tests.workflows.tab import Tab

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page, Route

CARD = f'[data-download="{PIPER}"]'
BAR = f'[data-download="{PIPER}"] [role="progressbar"]'
RESTRICTED_FILE = "en_US-lessac-medium"
RESTRICTED = "piper:en_US-lessac-medium"
LOADER = "app.graph.nodes.find((node) => node.type === 'MizuotoPiperModel')"
BUTTON = f"{LOADER}.widgets.find((one) => one.name === 'mizuoto_fetch')"


@pytest.fixture(scope="module")
def hub() -> Iterator[Server]:
    """Holds the demo's voice at the address where it is published."""
    variant = next(variant for variant in VARIANTS if variant.id == prompts.VOICE)
    folder = packaged_voice().parent
    held = Server("", {f"/{file.url}": (folder / file.path).read_bytes() for file in variant.files})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler(held))
    held.endpoint = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield held
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture(scope="module")
def fetching(tree: Tree, hub: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    """A server without models that fetches from the hub."""
    base = prepare_base(tmp_path_factory.mktemp("fetch"))
    with ComfyServer(tree, base, env={"HF_ENDPOINT": ""}) as running:
        Api(running.url).send("PATCH", "/settings", {"fetch.endpoint": hub.endpoint})
        yield running


@pytest.fixture
def api(fetching: ComfyServer, hub: Server) -> Api:
    hub.cut_after.clear()
    shutil.rmtree(folder(fetching), ignore_errors=True)
    return Api(fetching.url)


def folder(server: ComfyServer) -> Path:
    return server.base / FOLDER


def ended(api: Api, model_id: str = PIPER) -> dict[str, Any]:
    """The download of that model, once it has ended."""
    deadline_s = time.monotonic() + 120
    while True:
        (download,) = [each for each in api.get("/downloads")["downloads"] if each["id"] == model_id]
        if download["state"] not in GOING_ON:
            return download
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def installed(api: Api) -> dict[str, bool]:
    engines = {engine["id"]: engine for engine in api.get("/engines")["engines"]}
    return {model["id"]: model["installed"] for model in engines["piper"]["models"]}


@pytest.mark.server
def test_a_model_is_fetched_and_speaks(api: Api, fetching: ComfyServer) -> None:
    assert not installed(api)[prompts.VOICE]
    started = api.send("POST", f"/models/{PIPER}/fetch", {})
    assert started["id"] == PIPER and started["state"] in ("waiting", "running")
    done = ended(api)
    assert (done["state"], done["message"]) == ("done", "") and done["done_bytes"] == done["total_bytes"] > 60_000_000
    assert installed(api)[prompts.VOICE]
    client = ComfyClient(fetching.url)
    audio, _ = prompts.samples(client, client.run(prompts.speak("Piper", "Hello.")))
    assert audio.shape[1] > 5000


@pytest.mark.server
def test_a_cut_connection_leaves_nothing_half_and_goes_on_later(api: Api, hub: Server, fetching: ComfyServer) -> None:
    path = next(path for path in hub.files if path.endswith(".onnx"))
    hub.cut_after[path] = [1_000_000] * 4
    api.send("POST", f"/models/{PIPER}/fetch", {})
    failed = ended(api)
    assert failed["state"] == "failed" and "are kept, fetch again to go on" in failed["message"]
    assert not installed(api)[prompts.VOICE]
    api.send("POST", f"/models/{PIPER}/fetch", {})
    assert ended(api)["state"] == "done"
    assert hub.asked[-1] == (path, "bytes=4000000-")
    assert (folder(fetching) / f"{prompts.VOICE}.onnx").read_bytes() == hub.files[path]


@pytest.mark.server
def test_a_restricting_licence_has_to_be_accepted(api: Api, hub: Server) -> None:
    asked = len(hub.asked)
    status, kind, message = api.error("POST", f"/models/{RESTRICTED}/fetch", {})
    assert (status, kind) == (403, "LicenceNotAccepted") and "research only" in message
    assert len(hub.asked) == asked
    api.send("POST", f"/models/{RESTRICTED}/fetch", {"accept_licence": True})
    assert ended(api, RESTRICTED)["state"] == "failed", "the hub doesn't have it"


@pytest.mark.server
@pytest.mark.parametrize(
    ("method", "model_id", "body", "message"),
    [
        ("POST", "piper:nothing", {}, "unknown published Piper model"),
        ("POST", "dummy:tones", {}, "has no models to download"),
        ("POST", "piper:..%2Fx", {}, "unknown published Piper model"),
        ("POST", PIPER, {"accept_licence": "yes"}, "must be true or false"),
        ("POST", PIPER, {"accept_license": True}, "Did you mean 'accept_licence'"),
        ("DELETE", "piper:nothing", None, "no download of piper:nothing waits or runs"),
    ],
)
def test_what_cannot_be_fetched_is_refused(
    api: Api, method: str, model_id: str, body: object, message: str
) -> None:
    status, _, told = api.error(method, f"/models/{model_id}/fetch", body)
    assert status == 400 and message in told


@pytest.fixture(scope="module")
def tab(browser: Browser, fetching: ComfyServer) -> Iterator[Tab]:
    """A page with a loader node that chose the hub's voice, and the sidebar tab open."""
    made = Tab(browser, ComfyClient(fetching.url))
    made.page.evaluate(
        "async ([voice, empty]) => { await app.loadGraphData(empty);"
        " const node = LiteGraph.createNode('MizuotoPiperModel'); app.graph.add(node);"
        " const menu = node.widgets.find((one) => one.name === 'model'); menu.value = voice; menu.callback?.(voice) }",
        [prompts.VOICE, EMPTY_GRAPH],
    )
    yield made
    made.page.close()


@pytest.fixture
def page(tab: Tab, api: Api) -> Iterator[Page]:
    """That page, as it is while the model isn't there."""
    tab.page.evaluate("window.app.api.dispatchEvent(new CustomEvent('reconnected'))")
    tab.page.wait_for_function(f"{BUTTON}.label === 'Fetch model (60 MB)'")
    yield tab.page
    assert tab.complaints == []


@pytest.mark.server
@pytest.mark.browser
def test_the_button_fetches_the_chosen_model(page: Page, api: Api) -> None:
    page.evaluate(f"{BUTTON}.callback()")
    page.wait_for_function(f"{BUTTON}.label.startsWith('Fetching')")
    page.wait_for_function(f"{BUTTON}.label === 'Installed' && {BUTTON}.disabled", timeout=120_000)
    assert installed(api)[prompts.VOICE]
    assert page.inner_text(f"{CARD} .mizuoto-quiet") == "Installed"
    saved = page.evaluate("app.graph.serialize().nodes[0].widgets_values")
    assert saved == [prompts.VOICE], "the button isn't part of a workflow"
    prompt = page.evaluate("async () => (await app.graphToPrompt()).output")
    assert next(iter(prompt.values()))["inputs"] == {"model": prompts.VOICE}


@pytest.mark.server
@pytest.mark.browser
def test_an_answer_that_comes_late_hides_nothing_newer(page: Page, api: Api) -> None:
    def answer_late(route: Route) -> None:
        answer = route.fetch()
        assert ended(api)["state"] == "done"
        time.sleep(0.5)
        route.fulfill(response=answer)

    page.route(f"**/{PIPER.replace(':', '%3A')}/fetch", answer_late)
    with page.expect_response(lambda answer: answer.url.endswith("/fetch")):
        page.evaluate(f"void {BUTTON}.callback()")
    page.wait_for_timeout(200)
    page.unroute_all()
    assert page.get_attribute(CARD, "data-state") == "done"


@pytest.mark.server
@pytest.mark.browser
def test_the_panel_shows_a_download_stops_it_and_goes_on(page: Page, api: Api, hub: Server) -> None:
    path = next(path for path in hub.files if path.endswith(".onnx"))
    hub.hold_after[path] = 20 * MB
    hub.go_on.clear()
    page.evaluate(f"{BUTTON}.callback()")
    page.wait_for_function(f"document.querySelector('{BAR}')?.ariaValueNow === '33'")
    assert page.inner_text(f"{CARD} .mizuoto-quiet") == "Fetching · 20 MB of 60 MB"
    page.focus(f'{CARD} [data-action="stop"]')
    page.keyboard.press("Enter")
    page.wait_for_selector(f'{CARD}[data-state="stopping"]')
    assert page.is_disabled(f'{CARD} [data-action="stop"]')
    assert page.evaluate(f"[{BUTTON}.label, {BUTTON}.disabled]") == ["Stopping…", True]
    hub.go_on.set()
    page.wait_for_selector(f'{CARD}[data-state="cancelled"]')
    assert re.search(r"Stopped; what has come is kept · 2\d MB of 60 MB", page.inner_text(CARD))
    assert not installed(api)[prompts.VOICE]
    page.click(f'{CARD} [data-action="go_on"]')
    page.wait_for_selector(f'{CARD}[data-state="done"]', timeout=120_000)
    assert installed(api)[prompts.VOICE]
    start = int(str(hub.asked[-1][1]).removeprefix("bytes=").removesuffix("-"))
    assert start >= 20 * MB, "it went on where it was stopped"
    page.click(f'{CARD} [data-action="hide"]')
    page.wait_for_selector(CARD, state="detached")


@pytest.mark.server
@pytest.mark.browser
def test_the_panel_says_why_a_download_failed(page: Page, tab: Tab, api: Api, hub: Server) -> None:
    path = next(path for path in hub.files if path.endswith(".onnx"))
    hub.cut_after[path] = [1_000_000] * 4
    api.send("POST", f"/models/{PIPER}/fetch", {})
    page.wait_for_selector(f'{CARD}[data-state="failed"]')
    assert "are kept, fetch again to go on" in page.inner_text(f"{CARD} .mizuoto-error")
    for _ in range(2):
        tab.toggle()
    page.wait_for_selector(f'{CARD}[data-state="failed"]')
    page.click(f'{CARD} [data-action="go_on"]')
    page.wait_for_selector(f'{CARD}[data-state="done"]', timeout=120_000)
    assert installed(api)[prompts.VOICE]


@pytest.mark.server
@pytest.mark.browser
def test_a_licence_that_restricts_is_shown_before_anything_is_fetched(page: Page, hub: Server) -> None:
    asked = len(hub.asked)
    choose = f"(voice) => {{ const menu = {LOADER}.widgets[0]; menu.value = voice; menu.callback?.(voice) }}"
    page.evaluate(choose, RESTRICTED.partition(":")[2])
    page.evaluate(f"void {BUTTON}.callback()")
    page.wait_for_function("document.querySelector('[role=dialog]')?.innerText.includes('research only')")
    page.keyboard.press("Escape")
    page.wait_for_function("!document.querySelector('[role=dialog]')")
    page.wait_for_timeout(200)
    assert len(hub.asked) == asked, "who closes the dialog has not said yes"
    page.evaluate(f"void {BUTTON}.callback()")
    page.locator("[role=dialog] button", has_text="Confirm").click()
    page.wait_for_function(f"document.querySelector('.p-toast')?.innerText.includes({RESTRICTED_FILE!r})")
    assert len(hub.asked) > asked, "the hub was asked, and doesn't have it"
    page.evaluate(choose, prompts.VOICE)


def run_all(
    fetch: Callable[..., object], *names: str, then: Callable[[Downloads], None] | None = None
) -> list[DownloadFacts]:
    """What was told of downloads of those models, until all have ended. then: called once all are started."""
    told: list[DownloadFacts] = []
    states: dict[str, str] = {}
    over = threading.Event()

    def tell(facts: DownloadFacts) -> None:
        told.append(facts)
        states[facts["id"]] = facts["state"]
        if len(states) == len(names) and not set(states.values()) & set(GOING_ON):
            over.set()

    downloads = Downloads(fetch, tell)
    for name in names:
        downloads.start(ModelRef("e", name), accepts_licence=False)
    if then is not None:
        then(downloads)
    assert over.wait(30)
    return told


def test_downloads_run_one_after_another_and_an_error_ends_one_only() -> None:
    running: list[str] = []

    def fetch(ref: ModelRef, accepts: bool, progress: Callable[[Progress], None], check: Callable[[], None]) -> None:
        assert not running
        running.append(ref.model)
        progress(Progress(ref.model, 5, 10))
        running.clear()
        if ref.model == "bad":
            raise InputError("no such thing")
        if ref.model == "worse":
            raise ZeroDivisionError("a fault")

    told = run_all(fetch, "bad", "worse", "good")
    ends = {facts["id"]: (facts["state"], facts["message"]) for facts in told}
    assert ends == {
        "e:bad": ("failed", "no such thing"),
        "e:worse": ("failed", "ZeroDivisionError: a fault"),
        "e:good": ("done", ""),
    }
    assert {"id": "e:good", "state": "running", "done_bytes": 5, "total_bytes": 10, "message": ""} in told


def test_one_that_waits_and_one_that_runs_can_be_cancelled() -> None:
    begun = threading.Event()

    def fetch(ref: ModelRef, accepts: bool, progress: Callable[[Progress], None], check: Callable[[], None]) -> None:
        begun.set()
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s:
            check()
            time.sleep(0.001)

    def cancel(downloads: Downloads) -> None:
        assert begun.wait(30)
        assert downloads.start(ModelRef("e", "runs"), accepts_licence=False)["state"] == "running", "not twice"
        assert downloads.cancel(ModelRef("e", "waits"))["state"] == "cancelled", "at once"
        assert downloads.cancel(ModelRef("e", "runs"))["state"] == "stopping"

    told = run_all(fetch, "runs", "waits", then=cancel)
    assert {facts["id"]: facts["state"] for facts in told} == {"e:runs": "cancelled", "e:waits": "cancelled"}
    with pytest.raises(InputError, match="no download of e:other"):
        Downloads(fetch, lambda facts: None).cancel(ModelRef("e", "other"))


def test_what_is_started_again_runs_once() -> None:
    begun, stop = threading.Event(), threading.Event()
    ran: list[str] = []

    def fetch(ref: ModelRef, accepts: bool, progress: Callable[[Progress], None], check: Callable[[], None]) -> None:
        ran.append(ref.model)
        begun.set()
        if ref.model == "first":
            assert stop.wait(30)
            progress(Progress(ref.model, 5, 10))
            check()

    def again(downloads: Downloads) -> None:
        assert begun.wait(30)
        downloads.cancel(ModelRef("e", "second"))
        assert downloads.start(ModelRef("e", "second"), accepts_licence=False)["state"] == "waiting"
        downloads.cancel(ModelRef("e", "first"))
        with pytest.raises(InputError, match="is being stopped; start it again in a moment"):
            downloads.start(ModelRef("e", "first"), accepts_licence=False)
        stop.set()

    told = run_all(fetch, "first", "second", then=again)
    assert ran == ["first", "second"]
    assert {"id": "e:first", "state": "stopping", "done_bytes": 5, "total_bytes": 10, "message": ""} in told
