"""`runtime` on the command line: bars that add up, and what is said when no server answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from mizuoto_runtime.cli import main
from mizuoto_runtime.cli.runtime import PARTS, PATH, bar, text

MB = 1 << 20
SIZES = {"size_bytes": 100 * MB, "loaded_bytes": 50 * MB, "streamed_bytes": 25 * MB, "host_bytes": 25 * MB}
PART: dict[str, Any] = {"name": "talker", **SIZES}
FACTS: dict[str, Any] = {
    "device": {"name": "cuda:0", "product": "Card"},
    "shares": {
        "total_bytes": 1000 * MB, "own_bytes": 100 * MB, "application_bytes": 400 * MB, "other_bytes": 100 * MB,
        "free_bytes": 400 * MB,
    },
    "ram": {"total_bytes": 8000 * MB, "free_bytes": 4000 * MB, "reserve_bytes": 0},
    "models": [
        {
            "id": "a:b", "engine_label": "Engine", "model": "b", "busy": False, "idle_seconds": 5.0, "pinned": True,
            "size_bytes": 100 * MB, "components": [PART],
        }
    ],
}  # fmt: skip


@pytest.fixture
def answers() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server's address, and what it answers: `status` and `body`."""
    state: dict[str, Any] = {"status": 200, "body": json.dumps(FACTS).encode()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == PATH
            self.send_response(state["status"])
            self.end_headers()
            self.wfile.write(state["body"])

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", state
    server.shutdown()
    server.server_close()


def test_a_report_is_drawn(answers: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "--url", answers[0] + "/"]) == 0
    shown = capsys.readouterr().out
    assert "cuda:0 Card: 1,000 MB" in shown
    assert "▓ application 400 MB  █ own 100 MB  ▒ other 100 MB  · free 400 MB" in shown
    assert "Engine b, 100 MB, idle for 5 s, pinned" in shown
    assert "50 MB of 100 MB" in shown


def test_the_same_as_json(answers: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "--json", "--url", answers[0]]) == 0
    assert json.loads(capsys.readouterr().out) == FACTS


@pytest.mark.parametrize("width", [10, 33, 60])
@pytest.mark.parametrize("loaded", [0, 1, 333, 999, 1000])
@pytest.mark.parametrize("streamed_share", [0.0, 0.5, 1.0])
def test_a_bar_is_exactly_as_wide_as_asked(width: int, loaded: int, streamed_share: float) -> None:
    streamed = round((1000 - loaded) * streamed_share)
    sizes = {"loaded_bytes": loaded, "streamed_bytes": streamed, "host_bytes": 1000 - loaded - streamed}
    drawn = bar(sizes, PARTS, 1000, width)
    assert len(drawn) == width
    assert abs(drawn.count("█") - width * loaded / 1000) <= 0.5
    assert drawn == "".join(sorted(drawn, key="█▒·".index))


def test_a_component_without_weights_has_an_empty_bar() -> None:
    assert bar(dict.fromkeys(("loaded_bytes", "streamed_bytes", "host_bytes"), 0), PARTS, 0, 12) == "·" * 12


def test_an_empty_server_and_a_plain_cpu() -> None:
    facts = {**FACTS, "shares": None, "models": [], "device": {"name": "cpu", "product": ""}}
    assert text(facts, 20) == "cpu: in RAM, 4,000 MB of 8,000 MB free\n\nno model is loaded"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b"", "Mizuoto isn't installed there"),
        (500, b"", "see ComfyUI's log"),
        (200, b"hello", "no ComfyUI answers"),
        (200, b"[]", "something else than a runtime report"),
    ],
)
def test_another_answer_is_told(
    answers: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str], status: int, body: bytes, message: str
) -> None:
    answers[1].update(status=status, body=body)
    assert main(["runtime", "--url", answers[0]]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "status", "message"),
    [
        ("http://127.0.0.1:9", 1, "start it, or give its address with --url"),
        ("127.0.0.1:8188", 2, "must begin with http://"),
        ("file:///etc/passwd", 2, "must begin with http://"),
    ],
)
def test_no_server_is_told(url: str, status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "--url", url]) == status
    assert message in capsys.readouterr().err
