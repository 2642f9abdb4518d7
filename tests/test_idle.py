"""Models that nobody uses go by themselves when it is time, where a server runs on."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mizuoto_runtime import session as sessions
from mizuoto_runtime.idle import Watch
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve


class Owner:
    """Returns the next of `waits` each time it is called."""

    def __init__(self, *waits: float | None) -> None:
        self.waits = list(waits)
        self.called_s: list[float] = []
        self.watch = Watch(self.due)

    def due(self) -> float | None:
        self.called_s.append(time.monotonic())
        return self.waits.pop(0)


def waiting() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "mizuoto-idle"}


def test_it_is_called_until_it_has_nothing_more_to_wait_for() -> None:
    owner, others = Owner(0.01, 0.2, None), waiting()
    started_s = time.monotonic()
    owner.watch.within(0.1)
    until(lambda: not owner.waits and not waiting() - others)
    first, second, third = (called_s - started_s for called_s in owner.called_s)
    assert first >= 0.1 and second >= first + 0.01 and third >= second + 0.2


def test_the_sooner_time_counts_and_one_thread_waits() -> None:
    owner, others = Owner(None), waiting()
    owner.watch.within(3600)
    owner.watch.within(3000)
    owner.watch.within(3500)
    until(lambda: len(waiting() - others) == 1)
    owner.watch.within(0.01)
    until(lambda: not owner.waits and not waiting() - others)


def test_it_keeps_neither_its_owner_nor_the_process() -> None:
    owner, others = Owner(), waiting()
    called_s = owner.called_s
    owner.watch.within(0.1)
    assert all(thread.daemon for thread in waiting())
    del owner
    gc.collect()
    until(lambda: not waiting() - others)
    assert called_s == []


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """One whose models go after 0.3 seconds without a run."""
    monkeypatch.setattr(sessions, "MINUTE_S", 0.3)
    monkeypatch.setattr(sessions, "ASK_AGAIN_S", 0.02)
    settings = resolve({"compute.unload_after_minutes": "1", "compute.simulate_vram_mb": "4096"}, {})
    session = Session(settings, ModelLibrary([tmp_path]))
    session.manager.host.serves = True
    return session


def speak(session: Session) -> None:
    session.speak(session.find("dummy", "tones"), SpeakRequest(text="a"))


def until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_an_idle_model_goes_though_nobody_asks(served: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    told, rests = list[int](), [False]
    monkeypatch.setattr(served.manager.host, "rests", lambda: rests[0])
    monkeypatch.setattr(served.manager.host, "let_go", lambda: told.append(served.manager.device.held_bytes()))
    for times in (1, 2):
        speak(served)
        assert served.manager.device.held_bytes() > 0
        rests[0] = True
        until(lambda times=times: len(told) == times)  # type: ignore[misc]
        assert not list(served.models)
        rests[0] = False
    assert told == [0, 0]


def test_no_model_goes_while_it_runs_or_the_application_does(served: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    rests = [False]
    monkeypatch.setattr(served.manager.host, "rests", lambda: rests[0])
    speak(served)
    (model,) = served.models
    time.sleep(0.5)
    assert list(served.models) == [model]
    with model.running():
        rests[0] = True
        time.sleep(0.5)
        assert list(served.models) == [model]
    until(lambda: not list(served.models))


def test_a_shorter_wait_counts_at_once_and_none_is_for_ever(served: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    hour = resolve({"compute.unload_after_minutes": "12000", "compute.simulate_vram_mb": "4096"}, {})
    minute = served.settings
    served.apply(hour)
    speak(served)
    served.apply(resolve({"compute.unload_after_minutes": "0"}, {}))
    time.sleep(0.5)
    assert len(list(served.models)) == 1
    served.apply(minute)
    until(lambda: not list(served.models))
