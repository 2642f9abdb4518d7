"""The one place that imports ComfyUI's internals: its memory, its cancel, its progress, its model folders."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import comfy.model_management as mm
import comfy.model_patcher
import comfy.utils
import folder_paths
import torch
from comfy_execution.utils import get_executing_context

from ..mizuoto_runtime.errors import MizuotoError
from ..mizuoto_runtime.library import ModelLibrary, roots_from
from ..mizuoto_runtime.memory.device import Device, checked_device
from ..mizuoto_runtime.memory.host import StandaloneHost, Tenant
from ..mizuoto_runtime.memory.oom import is_out_of_memory
from ..mizuoto_runtime.memory.policy import ALLOCATOR_VARIABLES, VramMode
from ..mizuoto_runtime.saved import SavedSettings
from ..mizuoto_runtime.settings import Settings, resolve
from ..mizuoto_runtime.types import Callbacks, ModelRef, Progress
from .adapter import Core, load_device, reserve_beside
from .pins import PinBooks

if TYPE_CHECKING:
    from ..mizuoto_runtime.downloads import DownloadFacts, Downloads
    from ..mizuoto_runtime.memory.handle import ModelHandle
    from ..mizuoto_runtime.memory.pinning import PinHost
    from ..mizuoto_runtime.session import Session

LOG = logging.getLogger(__name__)

FOLDER = "mizuoto"
FOREIGN_FOLDERS = ("TTS", "tts")
PROGRESS_INTERVAL_S = 0.01
ANNOUNCE_INTERVAL_S = 0.5
VRAM_MODES: dict[str, VramMode] = {
    "NO_VRAM": "none",
    "LOW_VRAM": "low",
    "NORMAL_VRAM": "normal",
    "HIGH_VRAM": "high",
    "SHARED": "shared",
}

HandleAdapter = type("HandleAdapter", (Core, comfy.model_patcher.ModelPatcher), {})

_lock = threading.Lock()
_session: Session | None = None
_announced_s = 0.0


class ComfyHost(StandaloneHost):
    """ComfyUI as the runtime sees it. `device`: the one to use instead of ComfyUI's own, empty for none.

    On a device that ComfyUI manages, each handle is an entry of ComfyUI's list of loaded models, and what is free there
    and what stays free is what ComfyUI says. On a CPU, simulated or not, it manages nothing.
    """

    serves = True

    def __init__(self, device: str = "") -> None:
        super().__init__(device)
        self._tenant: Tenant | None = None
        self._pins = PinBooks(mm) if PinBooks.kept_by(mm) else None

    def connect(self, tenant: Tenant) -> None:
        self._tenant = tenant

    def device(self) -> str:
        return self._device or str(mm.get_torch_device())

    def vram_mode(self) -> VramMode | None:
        return VRAM_MODES.get(mm.vram_state.name)

    def free_bytes(self, device: Device) -> int:
        """Pages of dynamic models count as free where ComfyUI's driver hook evicts them for any allocation."""
        if not _managed(device):
            return super().free_bytes(device)
        place = _place(device)
        entry = next((each.model for each in mm.current_loaded_models if isinstance(each.model, Core)), None)
        if entry is None or not hasattr(entry, "get_free_memory") or _has_expandable_segments():
            return int(mm.get_free_memory(place))
        return int(entry.get_free_memory(place))

    def reserve_bytes(self, device: Device, memory_bytes: int) -> int | None:
        if not _managed(device):
            return None
        return reserve_beside(memory_bytes, mm.minimum_inference_memory(), mm.extra_reserved_memory())

    def held_bytes(self, device: Device) -> int:
        if not _managed(device):
            return 0
        entries = [(entry.model, entry.device) for entry in list(mm.current_loaded_models)]
        place = _place(device)
        return sum(
            int(model.loaded_size())
            for model, where in entries
            if model is not None and where == place and not isinstance(model, Core)
        )

    def claim(self, handles: Sequence[ModelHandle], memory_bytes: int, short_bytes: int, device: Device) -> bool:
        """As ComfyUI loads a model of its own, unless that could change nothing."""
        if not _managed(device):
            return False
        self._settle_pins()
        adapters = [self._adapter(handle, _place(device)) for handle in handles]
        held = [entry.model for entry in mm.current_loaded_models if entry.device == _place(device)]
        listed = all(any(model is adapter for model in held) for adapter in adapters)
        others = any(model is not None and model not in adapters and model.loaded_size() > 0 for model in held)
        if listed and (short_bytes <= 0 or not others):
            return False
        mm.load_models_gpu(adapters, memory_required=memory_bytes)
        return True

    def free_all(self, device: Device) -> int:
        if not _managed(device):
            return 0
        own = [entry for entry in mm.current_loaded_models if isinstance(entry.model, Core)]
        before_bytes = mm.get_free_memory(_place(device))
        mm.free_memory(1e30, _place(device), keep_loaded=own)
        return int(mm.get_free_memory(_place(device)) - before_bytes)

    def ended(self, handles: Sequence[ModelHandle], device: Device) -> None:
        """What ComfyUI took off its list during the phase leaves now, so that the books agree."""
        if not _managed(device) or self._tenant is None:
            return
        for handle in handles:
            if handle.held_bytes and not any(entry.model is handle.entry for entry in mm.current_loaded_models):
                self._tenant.let_go(handle)
        self._settle_pins()

    def pin_host(self) -> PinHost | None:
        return self._pins

    def check_thread(self) -> None:
        """ComfyUI's memory management may be used by the thread that runs a prompt, and by no other."""
        if get_executing_context() is None:
            name = threading.current_thread().name
            raise RuntimeError(f"thread {name!r} runs no node of a prompt; speech shares ComfyUI's memory only there")

    def check(self) -> None:
        mm.throw_exception_if_processing_interrupted()

    def is_out_of_memory(self, error: BaseException) -> bool:
        comfys = mm.is_oom(error) if hasattr(mm, "is_oom") else _is_comfys_oom(error)
        return comfys or is_out_of_memory(error)

    def _settle_pins(self) -> None:
        if self._pins is not None:
            self._pins.settle()

    def _adapter(self, handle: ModelHandle, place: torch.device) -> Any:
        if not isinstance(handle.entry, Core) or not handle.entry.speaks_for(handle, place):
            handle.entry = HandleAdapter(handle, place, self._tenant)
        return handle.entry


def _managed(device: Device) -> bool:
    """Whether ComfyUI's memory management minds what lies on `device`; it asks for "cpu" in the same way."""
    return not device.plain and torch.device(device.name) != torch.device("cpu")


def _has_expandable_segments() -> bool:
    """Whether torch allocates in the one way that comfy-aimdo doesn't see."""
    return any("expandable_segments:True" in os.environ.get(name, "") for name in ALLOCATOR_VARIABLES)


def _place(device: Device) -> torch.device:
    return load_device(device.name, mm.get_torch_device())


def _is_comfys_oom(error: BaseException) -> bool:
    """Where torch knows no such error, OOM_EXCEPTION is Exception itself."""
    return mm.OOM_EXCEPTION is not Exception and isinstance(error, mm.OOM_EXCEPTION)


@contextmanager
def comfys_out_of_memory() -> Iterator[None]:
    """An allocation that failed, in whichever library, becomes the error for which ComfyUI unloads its models."""
    try:
        yield
    except Exception as error:
        if _is_comfys_oom(error) or not is_out_of_memory(error):
            raise
        raise cast(type[Exception], mm.OOM_EXCEPTION)(str(error)) from error


def saved_settings() -> SavedSettings:
    """The settings, with those that the user changed in ComfyUI."""
    return SavedSettings(Path(folder_paths.get_user_directory()) / FOLDER / "settings.json")


def session() -> Session:
    """The process's only session, made when it is first needed. InputError for a setting that can't be."""
    from ..mizuoto_runtime.session import Session

    global _session
    with _lock:
        if _session is None:
            settings = saved_settings().resolve()
            chosen = settings.text("compute.device")
            host = ComfyHost(checked_device(chosen) if chosen else "")
            _session = Session(settings, ModelLibrary(_roots(settings)), host)
        return _session


def library() -> ModelLibrary:
    """The installed models. A setting that can't be read is left to the first run to complain about."""
    try:
        return ModelLibrary(_roots(resolve()))
    except MizuotoError:
        return ModelLibrary(_folders())


def register_folders() -> None:
    """Tell ComfyUI of models/mizuoto, where new models go; folders of extra_model_paths.yaml come after it."""
    folder_paths.add_model_folder_path(FOLDER, str(Path(folder_paths.models_dir) / FOLDER), is_default=True)


def callbacks() -> Callbacks:
    """Progress of the node that runs now on this thread; the host says when it is cancelled."""
    return Callbacks(progress=NodeProgress().show)


class Served:
    """What the routes show and change: the process's session."""

    def saved(self) -> SavedSettings:
        return saved_settings()

    def runtime(self) -> dict[str, Any]:
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

    def doctor(self) -> dict[str, Any]:
        from ..mizuoto_runtime.doctor import examine
        from ..mizuoto_runtime.memory.device import present

        running = session()
        return examine(running.settings, running.library, running.manager.facts(present()))

    def library(self) -> ModelLibrary:
        return library()

    def apply(self, changes: Mapping[str, object]) -> None:
        session().apply(saved_settings().change(changes))

    def unload(self, ref: ModelRef) -> None:
        session().unload(ref)

    def offload(self, ref: ModelRef) -> None:
        session().offload(ref)

    def downloads(self) -> Downloads:
        return _downloads()


@cache
def _downloads() -> Downloads:
    from ..mizuoto_runtime.downloads import Downloads

    return Downloads(_fetch, DownloadTeller().tell)


def _fetch(
    ref: ModelRef, accepts_licence: bool, progress: Callable[[Progress], None], check: Callable[[], None]
) -> None:
    from ..mizuoto_runtime.engines.registry import engine_spec
    from ..mizuoto_runtime.fetch import fetch

    endpoint = os.environ.get("HF_ENDPOINT")
    spec = engine_spec(ref.engine)
    fetch(
        spec, ref.model, library(), accepts_licence=accepts_licence, endpoint=endpoint, progress=progress, check=check
    )


class DownloadTeller:
    """Tells the open pages of downloads, of their progress a few times a second only."""

    def __init__(self) -> None:
        self._told_s = 0.0

    def tell(self, download: DownloadFacts) -> None:
        now_s = time.monotonic()
        going_on = download["state"] == "running" and download["done_bytes"] > 0
        server = _server()
        if server is None or (going_on and now_s - self._told_s < ANNOUNCE_INTERVAL_S):
            return
        self._told_s = now_s
        server.send_sync("mizuoto.download", dict(download))


def register_routes() -> None:
    """Serve the pack's own routes."""
    server = _server()
    if server is None:
        return
    from .routes import add_routes

    add_routes(server.routes, Served())


def announce(*, now: bool = False) -> None:
    """Tell the open pages what is held, at most every half second while a prompt runs. now: whenever that was.

    A page that can't be told fails no run.
    """
    global _announced_s
    server = _server()
    if server is None or _session is None or not (now or time.monotonic() - _announced_s >= ANNOUNCE_INTERVAL_S):
        return
    _announced_s = time.monotonic()
    try:
        server.send_sync("mizuoto.runtime", Served().runtime())
    except Exception:
        LOG.exception("what is held can't be told to the open pages")


def _server() -> Any:
    """ComfyUI's server; None where it isn't loaded, as when only the nodes are listed."""
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)


class NodeProgress:
    """Shows a phase's steps on the node that ComfyUI is running, at most a hundred times a second.

    Each call has a progress bar of its own: newer bars drop steps that come soon after one they have shown.
    """

    def __init__(self) -> None:
        self._shown_s = -PROGRESS_INTERVAL_S

    def show(self, progress: Progress) -> None:
        now_s = time.monotonic()
        if progress.total <= 0 or (now_s - self._shown_s < PROGRESS_INTERVAL_S and progress.done < progress.total):
            return
        self._shown_s = now_s
        announce()
        comfy.utils.ProgressBar(progress.total).update_absolute(progress.done)


def _roots(settings: Settings) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((*_folders(), *roots_from(settings))))


def _folders() -> tuple[Path, ...]:
    """Registered folders first, then those that other speech packs use."""
    foreign = [Path(folder_paths.models_dir) / name for name in FOREIGN_FOLDERS]
    extra = [path for name in FOREIGN_FOLDERS for path in _registered(name)]
    return tuple(dict.fromkeys((*_registered(FOLDER), *foreign, *extra)))


def _registered(name: str) -> list[Path]:
    known = name in folder_paths.folder_names_and_paths
    return [Path(path) for path in folder_paths.get_folder_paths(name)] if known else []
