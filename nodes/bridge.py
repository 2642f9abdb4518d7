"""The one place that imports ComfyUI's internals: its device, its cancel, its progress, its model folders."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import comfy.model_management
import comfy.utils
import folder_paths

from ..mizuoto_runtime.errors import MizuotoError
from ..mizuoto_runtime.library import ModelLibrary, roots_from
from ..mizuoto_runtime.memory.device import Device, checked_device
from ..mizuoto_runtime.memory.host import StandaloneHost
from ..mizuoto_runtime.memory.phase import Callbacks
from ..mizuoto_runtime.session import Session
from ..mizuoto_runtime.settings import Settings, resolve
from ..mizuoto_runtime.types import Progress

FOLDER = "mizuoto"
FOREIGN_FOLDERS = ("TTS", "tts")
PROGRESS_INTERVAL_S = 0.01

_lock = threading.Lock()
_session: Session | None = None


class ComfyHost(StandaloneHost):
    """ComfyUI as the runtime sees it. `device`: the one to use instead of ComfyUI's own, empty for none."""

    shares_device = True
    serves = True

    def device(self) -> str:
        return self._device or str(comfy.model_management.get_torch_device())

    def reserve_bytes(self, device: Device) -> int | None:
        return 0

    def make_room(self, size_bytes: int, device: str) -> None:
        import torch

        comfy.model_management.free_memory(size_bytes, torch.device(device))


def session() -> Session:
    """The process's only session, made when it is first needed. InputError for a setting that can't be."""
    global _session
    with _lock:
        if _session is None:
            settings = resolve()
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
    """Cancel and progress of the node that runs now on this thread."""
    return Callbacks(
        progress=NodeProgress().show, check=comfy.model_management.throw_exception_if_processing_interrupted
    )


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
