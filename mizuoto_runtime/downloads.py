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

State = Literal["waiting", "running", "stopping", "done", "failed", "cancelled"]
GOING_ON: tuple[State, ...] = ("waiting", "running", "stopping")
Fetch = Callable[[ModelRef, bool, Callable[[Progress], None], Callable[[], None]], object]
MAX_KEPT = 32


class DownloadFacts(TypedDict):
    """One download. stopping: it was cancelled, and ends with the next block. message: why it failed, what to do."""

    id: str
    state: State
    done_bytes: int
    total_bytes: int
    message: str


class Downloads:
    """fetch: downloads a model; told whether its licence was accepted, where to tell progress, what raises to cancel.

    tell: called with a download whenever its state changes, and for each block received; by any thread, one at a time
    and in order. It must not wait, nor call back.
    """

    def __init__(self, fetch: Fetch, tell: Callable[[DownloadFacts], None]) -> None:
        self._fetch = fetch
        self._tell = tell
        self._lock = threading.Lock()
        self._known: dict[ModelRef, DownloadFacts] = {}
        self._waiting: queue.SimpleQueue[tuple[ModelRef, bool]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def facts(self) -> list[DownloadFacts]:
        """All downloads since the start, the latest last."""
        with self._lock:
            return [DownloadFacts(**each) for each in self._known.values()]

    def start(self, ref: ModelRef, accepts_licence: bool) -> DownloadFacts:
        """Download a model once those before it are done; the same one again if it runs already.

        InputError while one of that model is being stopped.
        """
        with self._lock:
            present = self._known.get(ref)
            if present is not None and present["state"] == "stopping":
                raise InputError(f"the download of {present['id']} is being stopped; start it again in a moment")
            if present is not None and present["state"] in GOING_ON:
                return DownloadFacts(**present)
            self._known.pop(ref, None)
            self._known[ref] = facts = DownloadFacts(
                id=":".join(ref), state="waiting", done_bytes=0, total_bytes=0, message=""
            )
            self._forget_oldest()
            self._waiting.put((ref, accepts_licence))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="mizuoto-downloads", daemon=True)
                self._thread.start()
            return self._told(facts)

    def cancel(self, ref: ModelRef) -> DownloadFacts:
        """End a download; what has come so far is kept. InputError if none of that model waits or runs."""
        with self._lock:
            present = self._known.get(ref)
            if present is None or present["state"] not in GOING_ON:
                raise InputError(f"no download of {':'.join(ref)} waits or runs")
            present["state"] = "cancelled" if present["state"] == "waiting" else "stopping"
            return self._told(present)

    def _forget_oldest(self) -> None:
        ended = [ref for ref, facts in self._known.items() if facts["state"] not in GOING_ON]
        for ref in ended[: max(0, len(self._known) - MAX_KEPT)]:
            del self._known[ref]

    def _work(self) -> None:
        while True:
            ref, accepts_licence = self._waiting.get()
            self._run(ref, accepts_licence)

    def _run(self, ref: ModelRef, accepts_licence: bool) -> None:
        def check() -> None:
            if self._known[ref]["state"] == "stopping":
                raise Cancelled(f"the download of {':'.join(ref)} was cancelled")

        def progress(told: Progress) -> None:
            self._change(ref, done_bytes=told.done, total_bytes=told.total)

        if not self._begin(ref):
            return
        try:
            self._fetch(ref, accepts_licence, progress, check)
            self._change(ref, state="done")
        except Cancelled:
            self._change(ref, state="cancelled")
        except MizuotoError as error:
            self._change(ref, state="failed", message=str(error))
        except Exception as error:
            LOG.exception("the download of %s failed", ":".join(ref))
            self._change(ref, state="failed", message=f"{type(error).__name__}: {error}")

    def _begin(self, ref: ModelRef) -> bool:
        """Whether it still waits: it may have been cancelled, or have run because it was started twice."""
        with self._lock:
            facts = self._known.get(ref)
            if facts is None or facts["state"] != "waiting":
                return False
            facts["state"] = "running"
            self._told(facts)
            return True

    def _change(self, ref: ModelRef, **changes: object) -> None:
        with self._lock:
            self._known[ref].update(changes)  # type: ignore[typeddict-item]
            self._told(self._known[ref])

    def _told(self, facts: DownloadFacts) -> DownloadFacts:
        """A copy of the download, which is told of."""
        copy = DownloadFacts(**facts)
        self._tell(copy)
        return copy
