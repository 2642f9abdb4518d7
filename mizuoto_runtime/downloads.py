"""Downloads that a server runs beside everything else: one after another, told of, cancelled by name."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Literal, TypedDict

from .errors import Cancelled, InputError, MizuotoError
from .types import ModelRef, Progress

LOG = logging.getLogger(__name__)

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Fetch = Callable[[ModelRef, bool, Callable[[Progress], None], Callable[[], None]], object]
MAX_KEPT = 32


class DownloadFacts(TypedDict):
    """One download. message: why it failed, and what to do."""

    id: str
    state: State
    done_bytes: int
    total_bytes: int
    message: str


class Downloads:
    """fetch: downloads a model; told whether its licence was accepted, where to tell progress, what raises to cancel.

    tell: called with a download whenever its state changes, and for each block received; by the download's thread.
    """

    def __init__(self, fetch: Fetch, tell: Callable[[DownloadFacts], None]) -> None:
        self._fetch = fetch
        self._tell = tell
        self._lock = threading.Lock()
        self._known: dict[ModelRef, DownloadFacts] = {}
        self._cancelled: set[ModelRef] = set()
        self._waiting: queue.SimpleQueue[tuple[ModelRef, bool]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def facts(self) -> list[DownloadFacts]:
        """All downloads since the start, the latest last."""
        with self._lock:
            return [DownloadFacts(**each) for each in self._known.values()]

    def start(self, ref: ModelRef, accepts_licence: bool) -> DownloadFacts:
        """Download a model once those before it are done; the same one again if it runs already."""
        with self._lock:
            present = self._known.get(ref)
            if present is not None and present["state"] in ("waiting", "running"):
                return DownloadFacts(**present)
            self._cancelled.discard(ref)
            self._known.pop(ref, None)
            self._known[ref] = facts = DownloadFacts(
                id=":".join(ref), state="waiting", done_bytes=0, total_bytes=0, message=""
            )
            self._forget_oldest()
            self._waiting.put((ref, accepts_licence))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="mizuoto-downloads", daemon=True)
                self._thread.start()
            return DownloadFacts(**facts)

    def cancel(self, ref: ModelRef) -> None:
        """End a download; what has come so far is kept. InputError if none of that model waits or runs."""
        with self._lock:
            present = self._known.get(ref)
            if present is None or present["state"] not in ("waiting", "running"):
                raise InputError(f"no download of {':'.join(ref)} waits or runs")
            self._cancelled.add(ref)

    def _forget_oldest(self) -> None:
        ended = [ref for ref, facts in self._known.items() if facts["state"] not in ("waiting", "running")]
        for ref in ended[: max(0, len(self._known) - MAX_KEPT)]:
            del self._known[ref]

    def _work(self) -> None:
        while True:
            ref, accepts_licence = self._waiting.get()
            self._run(ref, accepts_licence)

    def _run(self, ref: ModelRef, accepts_licence: bool) -> None:
        def check() -> None:
            if ref in self._cancelled:
                raise Cancelled(f"the download of {':'.join(ref)} was cancelled")

        def progress(told: Progress) -> None:
            self._change(ref, state="running", done_bytes=told.done, total_bytes=told.total)

        try:
            check()
            self._change(ref, state="running")
            self._fetch(ref, accepts_licence, progress, check)
            self._change(ref, state="done")
        except Cancelled:
            self._change(ref, state="cancelled")
        except MizuotoError as error:
            self._change(ref, state="failed", message=str(error))
        except Exception as error:
            LOG.exception("the download of %s failed", ":".join(ref))
            self._change(ref, state="failed", message=f"{type(error).__name__}: {error}")

    def _change(self, ref: ModelRef, **changes: object) -> None:
        with self._lock:
            self._known[ref].update(changes)  # type: ignore[typeddict-item]
            facts = DownloadFacts(**self._known[ref])
        self._tell(facts)
