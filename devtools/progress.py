"""Shows a run's websocket events as a progress bar, or as a few plain lines where there is no terminal."""

from __future__ import annotations

import shutil
from typing import Any, TextIO

from .client import Event

BAR_CELLS = 28
PLAIN_STEPS = 4  # lines per node without a terminal


class ProgressBar:
    """Feed it events of one run; call `close` at the end. `prompt` gives the nodes their names."""

    def __init__(self, prompt: dict[str, Any], stream: TextIO) -> None:
        self._names = {node_id: str(node["class_type"]) for node_id, node in prompt.items()}
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._width = 0
        self._shown: tuple[str, int] | None = None

    def __call__(self, event: Event) -> None:
        data = event.data
        if event.type == "executing" and data.get("node") is not None:
            self._show(self._name(data), 0, 0)
        elif event.type == "progress":
            self._show(self._name(data), data.get("value", 0), data.get("max", 0))
        elif event.type == "progress_state":
            running = [node for node in data.get("nodes", {}).values() if node.get("state") == "running"]
            if running:
                self._show(self._name(running[-1]), running[-1].get("value", 0), running[-1].get("max", 0))

    def _name(self, data: dict[str, Any]) -> str:
        """The class of the node that the user sees; of a node that it has expanded into, such as 2.0.0.encode, too."""
        node_id = str(data.get("node") or data.get("node_id"))
        display_id = str(data.get("display_node") or data.get("display_node_id") or node_id)
        name = self._names.get(display_id) or self._names.get(node_id.split(".")[0]) or f"node {node_id}"
        part = node_id.split(".")[-1]
        return name if node_id in self._names or part.isdigit() else f"{name} {part}"

    def _show(self, name: str, value: float, maximum: float) -> None:
        fraction = min(1.0, max(0.0, value / maximum)) if maximum else 0.0
        counted = f"{value:g}/{maximum:g}" if maximum > 1 else ""
        if self._is_terminal:
            filled = round(BAR_CELLS * fraction)
            self._redraw(f"[{'#' * filled}{'-' * (BAR_CELLS - filled)}] {fraction:4.0%} {name} {counted}")
        else:
            self._plain(name, fraction, counted)

    def _redraw(self, line: str) -> None:
        line = line[: max(20, shutil.get_terminal_size().columns - 1)]
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def _plain(self, name: str, fraction: float, counted: str) -> None:
        step = int(fraction * PLAIN_STEPS)
        if self._shown is not None and self._shown[0] == name and self._shown[1] >= step:
            return
        self._shown = (name, step)
        percent = f" {fraction:.0%} ({counted})" if counted else ""
        print(f"  {name}{percent}", file=self._stream, flush=True)

    def close(self) -> None:
        """End the bar's line."""
        if self._is_terminal and self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0
