"""What this process has one of: its session, the settings that users change, and who tells the pages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..mizuoto_runtime.errors import MizuotoError
from ..mizuoto_runtime.library import ModelLibrary, roots_from
from ..mizuoto_runtime.memory.device import checked_device
from ..mizuoto_runtime.saved import SavedSettings
from ..mizuoto_runtime.settings import Settings, resolve
from ..mizuoto_runtime.types import Callbacks, Progress
from . import bridge
from .pages import Pages

if TYPE_CHECKING:
    from ..mizuoto_runtime.session import Session

_lock = threading.Lock()
_changing = threading.Lock()
_session: Session | None = None


@cache
def saved_settings() -> SavedSettings:
    """The settings, with those that the user changed in ComfyUI."""
    return SavedSettings(bridge.user_folder() / "settings.json")


def session() -> Session:
    """The process's only session, made when it is first needed. InputError for a setting that can't be."""
    from ..mizuoto_runtime.session import Session

    global _session
    with _lock:
        if _session is None:
            settings = saved_settings().resolve()
            chosen = settings.text("compute.device")
            host = bridge.ComfyHost(checked_device(chosen) if chosen else "", pages.soon)
            _session = Session(settings, ModelLibrary(_roots(settings)), host)
        return _session


def library() -> ModelLibrary:
    """The installed models. A setting that can't be read is left to the first run to complain about."""
    try:
        return ModelLibrary(_roots(resolve()))
    except MizuotoError:
        return ModelLibrary(bridge.model_folders())


def change_settings(changes: Callable[[Settings], Mapping[str, object]]) -> None:
    """Change settings, keep them, and go on with them. changes: what to change of the settings in force.

    Whoever comes at the same time waits, so that neither change is lost.
    """
    with _changing:
        saved = saved_settings()
        session().apply(saved.change(changes(saved.resolve())))
    pages.settings()


def runtime_report() -> dict[str, Any]:
    """What is held, by whom, under which policy, and where each setting is from."""
    from ..mizuoto_runtime.runtime import runtime_facts

    running = session()
    return {
        **runtime_facts(running),
        "memory": running.manager.facts(),
        "settings": {
            name: {"value": running.settings.values[name], "source": source}
            for name, source in running.settings.sources.items()
            if name.startswith("compute.")
        },
    }


def callbacks() -> Callbacks:
    """Progress of the node that runs now on this thread; the host says when it is cancelled."""
    shown = bridge.NodeProgress()

    def show(progress: Progress) -> None:
        shown.show(progress)
        pages.while_it_runs()

    return Callbacks(progress=show)


def _roots(settings: Settings) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((*bridge.model_folders(), *roots_from(settings))))


pages = Pages(bridge.server, lambda: None if _session is None else runtime_report())
