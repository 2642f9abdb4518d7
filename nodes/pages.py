"""Tells ComfyUI's open pages, over their websocket, what has changed here. No ComfyUI in it; its server is given.

A page that can't be told fails nothing: whoever tells goes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..mizuoto_runtime.downloads import DownloadFacts

LOG = logging.getLogger(__name__)
INTERVAL_S = 0.5
SOON_S = 0.2


class Pages:
    """server: ComfyUI's, None where none runs. runtime: what is held now, None before anything can be."""

    def __init__(self, server: Callable[[], Any], runtime: Callable[[], Mapping[str, Any] | None]) -> None:
        self._server = server
        self._runtime = runtime
        self._lock = threading.Lock()
        self._soon = False
        self._told_s = -INTERVAL_S
        self._download_told_s = -INTERVAL_S
        self._download: DownloadFacts | None = None

    def while_it_runs(self) -> None:
        """Tell what is held, at most every half second."""
        if time.monotonic() - self._told_s >= INTERVAL_S:
            self.held()

    def held(self) -> None:
        """Tell what is held."""
        self._told_s = time.monotonic()
        self._tell("mizuoto.runtime", self._runtime)

    def soon(self) -> None:
        """Tell what is held in a moment, once for all that changes until then. Returns at once, on any thread."""
        with self._lock:
            if self._soon:
                return
            self._soon = self._later(SOON_S, self._from_loop)

    def settings(self) -> None:
        """Tell that settings have changed, and what that does to what is held."""
        self._tell("mizuoto.settings", dict)
        self.held()

    def download(self, download: DownloadFacts) -> None:
        """Tell of a download; of its progress twice a second, and of the last there is however slowly more comes."""
        now_s = time.monotonic()
        going_on = download["state"] == "running" and download["done_bytes"] > 0
        with self._lock:
            if going_on and now_s - self._download_told_s < INTERVAL_S:
                if self._download is not None or self._later(INTERVAL_S, self._tell_download):
                    self._download = download
                return
            self._download_told_s, self._download = now_s, None
            self._tell("mizuoto.download", lambda: dict(download))

    def _tell_download(self) -> None:
        with self._lock:
            download, self._download = self._download, None
            if download is not None:
                self._download_told_s = time.monotonic()
                self._tell("mizuoto.download", lambda: dict(download))

    def _later(self, delay_s: float, call: Callable[[], None]) -> bool:
        """Whether `call` will be called, by the server's loop."""
        server = self._server()
        if server is None:
            return False
        try:
            server.loop.call_soon_threadsafe(server.loop.call_later, delay_s, call)
        except RuntimeError:  # the loop is closed: ComfyUI ends
            return False
        return True

    def _from_loop(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self._changed)

    def _changed(self) -> None:
        with self._lock:
            self._soon = False
        self.held()

    def _tell(self, event: str, content: Callable[[], Mapping[str, Any] | None]) -> None:
        server = self._server()
        if server is None:
            return
        try:
            facts = content()
            if facts is not None:
                server.send_sync(event, facts)
        except Exception:
            LOG.exception("the open pages can't be told of %s", event)
