from __future__ import annotations

import io

from devtools.client import Event
from devtools.progress import ProgressBar

PROMPT = {"1": {"class_type": "MizuotoSpeak", "inputs": {}}, "2": {"class_type": "SaveAudio", "inputs": {}}}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def feed(stream: io.StringIO) -> str:
    bar = ProgressBar(PROMPT, stream)
    bar(Event("executing", {"node": "1"}))
    for value in range(101):
        bar(Event("progress", {"node": "1.0.0.decode", "value": value, "max": 100}))
        running = {"node_id": "1.0.0.decode", "display_node_id": "1", "state": "running", "value": value, "max": 100}
        bar(Event("progress_state", {"nodes": {"1.0.0.decode": running}}))
    nodes = {
        "1": {"state": "finished", "value": 1, "max": 1, "node_id": "1"},
        "2": {"state": "running", "value": 1, "max": 2, "node_id": "2"},
    }
    bar(Event("progress_state", {"nodes": nodes}))
    bar(Event("executing", {"node": None}))
    bar(Event("unknown", {}))
    bar.close()
    return stream.getvalue()


def test_plain_lines_are_few_and_complete() -> None:
    lines = feed(io.StringIO()).splitlines()
    assert [line.strip() for line in lines] == [
        "MizuotoSpeak",
        "MizuotoSpeak decode 0% (0/100)",
        "MizuotoSpeak decode 25% (25/100)",
        "MizuotoSpeak decode 50% (50/100)",
        "MizuotoSpeak decode 75% (75/100)",
        "MizuotoSpeak decode 100% (100/100)",
        "SaveAudio 50% (1/2)",
    ]


def test_terminal_redraws_one_line() -> None:
    shown = feed(Terminal())
    assert shown.count("\n") == 1
    assert "[##############--------------]  50% MizuotoSpeak decode 50/100" in shown
