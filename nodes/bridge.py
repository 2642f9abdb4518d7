"""The one place that imports ComfyUI's internals: its memory, its cancel, its progress, its folders, its server."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import comfy.model_management as mm
import comfy.model_patcher
import comfy.utils
import folder_paths
import torch
from comfy_execution.utils import get_executing_context

from ..mizuoto_runtime.memory.device import Device
from ..mizuoto_runtime.memory.host import StandaloneHost, Tenant
from ..mizuoto_runtime.memory.oom import is_out_of_memory
from ..mizuoto_runtime.memory.policy import ALLOCATOR_VARIABLES, VramMode
from ..mizuoto_runtime.types import Progress
from .adapter import Core, ObservedTenant, load_device, reserve_beside
from .pins import PinBooks

if TYPE_CHECKING:
    from ..mizuoto_runtime.memory.handle import ModelHandle
    from ..mizuoto_runtime.memory.pinning import PinHost

FOLDER = "mizuoto"
FOREIGN_FOLDERS = ("TTS", "tts")
PROGRESS_INTERVAL_S = 0.01
VRAM_MODES: dict[str, VramMode] = {
    "NO_VRAM": "none",
    "LOW_VRAM": "low",
    "NORMAL_VRAM": "normal",
    "HIGH_VRAM": "high",
    "SHARED": "shared",
}

HandleAdapter = type("HandleAdapter", (Core, comfy.model_patcher.ModelPatcher), {})


class ComfyHost(StandaloneHost):
    """ComfyUI as the runtime sees it. `device`: the one to use instead of ComfyUI's own, empty for none.

    gave_way: called when weights have left, since ComfyUI wants the room or nobody used them; it must neither wait nor
    call ComfyUI back.

    On a device that ComfyUI manages, each handle is an entry of ComfyUI's list of loaded models, and what is free there
    and what stays free is what ComfyUI says. On a CPU, simulated or not, it manages nothing.
    """

    serves = True

    def __init__(self, device: str = "", gave_way: Callable[[], None] = lambda: None) -> None:
        super().__init__(device)
        self._gave_way = gave_way
        self._tenant: Tenant | None = None
        self._pins = PinBooks(mm) if PinBooks.kept_by(mm) else None

    def connect(self, tenant: Tenant) -> None:
        self._tenant = ObservedTenant(tenant, self._gave_way)

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

    def rests(self) -> bool:
        queue = getattr(server(), "prompt_queue", None)
        return queue is None or not queue.currently_running

    def let_go(self) -> None:
        self._gave_way()

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


def user_folder() -> Path:
    """Where the pack keeps what belongs to ComfyUI's user."""
    return Path(folder_paths.get_user_directory()) / FOLDER


def register_folders() -> None:
    """Tell ComfyUI of models/mizuoto, where new models go; folders of extra_model_paths.yaml come after it."""
    folder_paths.add_model_folder_path(FOLDER, str(Path(folder_paths.models_dir) / FOLDER), is_default=True)


def model_folders() -> tuple[Path, ...]:
    """Registered folders first, then those that other speech packs use."""
    foreign = [Path(folder_paths.models_dir) / name for name in FOREIGN_FOLDERS]
    extra = [path for name in FOREIGN_FOLDERS for path in _registered(name)]
    return tuple(dict.fromkeys((*_registered(FOLDER), *foreign, *extra)))


def _registered(name: str) -> list[Path]:
    known = name in folder_paths.folder_names_and_paths
    return [Path(path) for path in folder_paths.get_folder_paths(name)] if known else []


def server() -> Any:
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
        comfy.utils.ProgressBar(progress.total).update_absolute(progress.done)
