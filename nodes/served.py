"""What the HTTP routes show and change: this process's session, its settings, its models and their downloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ..mizuoto_runtime.engines.registry import engine_spec
from ..mizuoto_runtime.errors import UnknownName
from ..mizuoto_runtime.saved import SavedSettings
from ..mizuoto_runtime.settings import Settings
from . import bridge, process

if TYPE_CHECKING:
    from ..mizuoto_runtime.downloads import Downloads
    from ..mizuoto_runtime.library import ModelLibrary
    from ..mizuoto_runtime.types import ModelRef, Progress


def register_routes() -> None:
    """Serve the pack's own routes."""
    server = bridge.server()
    if server is None:
        return
    from .routes import add_routes

    add_routes(server.routes, ProcessServed())


class ProcessServed:
    """The process's own things, as `routes.Served`. Every open page is told of what is changed here."""

    def saved(self) -> SavedSettings:
        return process.saved_settings()

    def runtime(self) -> dict[str, Any]:
        return process.runtime_report()

    def doctor(self) -> dict[str, Any]:
        from ..mizuoto_runtime.doctor import examine
        from ..mizuoto_runtime.memory.device import present

        running = process.session()
        return examine(running.settings, running.library, running.manager.facts(present()))

    def library(self) -> ModelLibrary:
        return process.library()

    def apply(self, changes: Mapping[str, object]) -> None:
        process.change_settings(lambda settings: changes)

    def pin(self, ref: ModelRef, *, pinned: bool) -> None:
        known = self.library().known(engine_spec(ref.engine))
        if pinned and ref.model not in known:
            raise UnknownName("model", ref.model, known)
        name = f"engines.{ref.engine}.pinned_models"

        def changes(settings: Settings) -> dict[str, object]:
            others = [each for each in settings.names(name) if each != ref.model]
            return {name: [*others, ref.model] if pinned else others or None}

        process.change_settings(changes)

    def unload(self, ref: ModelRef) -> None:
        process.session().unload(ref)
        process.pages.held()

    def offload(self, ref: ModelRef) -> None:
        process.session().offload(ref)
        process.pages.held()

    def downloads(self) -> Downloads:
        return _downloads()


@cache
def _downloads() -> Downloads:
    from ..mizuoto_runtime.downloads import Downloads

    return Downloads(_fetch, process.pages.download)


def _fetch(
    ref: ModelRef, accepts_licence: bool, progress: Callable[[Progress], None], check: Callable[[], None]
) -> None:
    from ..mizuoto_runtime.fetch import endpoint_of, fetch

    fetch(
        engine_spec(ref.engine),
        ref.model,
        process.library(),
        accepts_licence=accepts_licence,
        endpoint=endpoint_of(process.saved_settings().resolve()),
        progress=progress,
        check=check,
    )
