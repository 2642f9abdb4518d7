"""The composition root: opens models, runs phases, and follows the chain of phases from a text to speech."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .engines.chain import speak_chain
from .engines.ports import artifacts, check_finite, port_values, reports_of
from .engines.registry import BUILT_IN, Engines
from .engines.spec import EngineSpec, Phase
from .errors import NotEnoughMemory
from .idle import Watch
from .library import ModelFiles, ModelLibrary, roots_from
from .loader import LoadedModel, Loader
from .memory.calibration import Calibration
from .memory.device import DeviceService, checked_device
from .memory.host import Host, StandaloneHost
from .memory.jobs import JobSlots
from .memory.manager import ModelManager
from .memory.phase import PhaseContext
from .memory.policy import VramMode, VramPolicy, policy_from
from .memory.ram import Candidate, Relief, relieve_plan
from .memory.working import PhaseId
from .meta import finished
from .models import Models
from .seeds import generator
from .settings import Settings, resolve
from .types import Artifact, Audio, Callbacks, ModelRef, Output, PhaseReport

LOG = logging.getLogger(__name__)
DEFAULT_CACHE = "~/.mizuoto/cache"
MINUTE_S = 60.0
ASK_AGAIN_S = 30.0
"""While the application is at work, or a model is."""


@dataclass(frozen=True, kw_only=True)
class SpeakRequest:
    """What is to be spoken.

    inputs: further inputs of the phases by port name (a voice, a reference and its text). options: parameters of any
    phase on the way, by name.
    """

    text: str
    seed: int = 0
    inputs: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)


class Session:
    """One process's runtime. Requests of several threads are fine; a model is loaded once for all of them."""

    def __init__(
        self,
        settings: Settings | None = None,
        library: ModelLibrary | None = None,
        host: Host | None = None,
        engines: Engines = BUILT_IN,
    ) -> None:
        self.engines = engines
        self.settings = settings or resolve()
        self.library = library or ModelLibrary(roots_from(self.settings))
        self._policies = _policies(self.settings)
        self.manager = self._manager(host)
        self.models = Models(
            self._load,
            lambda: self.settings.integer("compute.max_resident_models"),
            lambda ref: ref in self.manager.policy.pinned_models,
            lambda: self.settings.text("compute.dtype"),
        )
        self._jobs = JobSlots()
        self._idle = Watch(self._let_idle_go)

    def apply(self, settings: Settings) -> None:
        """Go on with other settings, from the next phase on; those that are read at the start don't change."""
        self.settings = settings
        self._policies = _policies(settings)
        self._watch()

    def unload(self, ref: ModelRef) -> None:
        """Let go of a loaded model. ModelBusy while a phase uses it, ModelNotLoaded if it isn't loaded."""
        self.models.idle(ref)
        self.offload(ref)
        self.models.drop(ref)

    def offload(self, ref: ModelRef) -> int:
        """Move an idle model off its device, into RAM; returns the bytes. Errors as in `unload`."""
        return sum(self.manager.let_go(handle) for handle in self.models.idle(ref).handles)

    def find(self, engine_id: str, model: str) -> ModelFiles:
        """The files of the model that is installed under the name `model`."""
        return self.library.find(self.engines.spec(engine_id), model)

    def locate(self, engine_id: str, model: str) -> ModelFiles:
        """As `find`, but `model` may also be a path: for callers who may read any file (the command line)."""
        spec = self.engines.spec(engine_id)
        if model not in self.library.known(spec) and _looks_like_path(model):
            return self.library.at(spec, Path(model))
        return self.library.find(spec, model)

    def open(self, files: ModelFiles) -> LoadedModel:
        """The loaded model; kept until `compute.max_resident_models` others were used after it, or its file changed."""
        loaded = self.models.open(files)
        self.relieve_ram()
        return loaded

    def close(self) -> None:
        """Let go of every loaded model."""
        self.models.drop_all()

    def unload_idle(self) -> int:
        """Let go of models that nobody has used for `compute.unload_after_minutes`, 0 for ever; returns how many."""
        longest_s = self._longest_idle_s()
        return self.models.drop_idle(time.monotonic() - longest_s) if longest_s else 0

    def relieve_ram(self) -> int:
        """If RAM is short of its reserve, idle host copies go, then idle models (H5); returns the bytes let go of."""
        short = self.manager.memory.short_bytes()
        freed = self.manager.drop_host_copies(short) if short else 0
        if freed >= short:
            return freed
        pinned = self.manager.policy.pinned_models
        candidates = [
            Candidate(
                item=loaded.ref,
                size_bytes=sum(handle.size_bytes for handle in loaded.handles),
                last_used=place,
                busy=loaded.busy,
                pinned=loaded.ref in pinned,
            )
            for place, loaded in enumerate(list(self.models)[:-1])
        ]
        relief: Relief[object, ModelRef] = relieve_plan(short - freed, (), candidates)
        for ref in relief.models:
            self.models.drop(ref)
        return freed + relief.size_bytes

    def run_phase(
        self,
        files: ModelFiles,
        phase_id: str,
        inputs: Mapping[str, object],
        options: Mapping[str, object],
        seed: int = 0,
        callbacks: Callbacks | None = None,
    ) -> tuple[Artifact, ...]:
        """Run one phase: one artifact per output, each with the reports of all phases before it.

        inputs by port name: texts and Audio as they are, outputs of other phases as the Artifact they came in.
        """
        spec = self.engines.spec(files.ref.engine)
        phase = spec.phase(phase_id)
        checked = phase.check(options)
        values = port_values(spec, phase, inputs)
        ctx = PhaseContext(
            phase.label,
            self.manager,
            generator(seed),
            callbacks or Callbacks(),
            PhaseId(files.ref.engine, files.ref.model, phase.id),
        )
        ctx.check()
        model = self.open(files)
        if self.manager.host.serves:
            self.unload_idle()
        started = time.perf_counter()
        try:
            with model.running(), self._job(ctx):
                result = _call(self.engines, spec, phase, ctx, model, {**values, **checked})
                check_finite(spec, phase, result)
            report = PhaseReport(
                engine=spec.id,
                model=files.ref.model,
                phase=phase.id,
                seconds=time.perf_counter() - started,
                seed=seed if phase.seeded else None,
                options=checked,
                memory=ctx.memory_report(),
                applied=dict(ctx.applied),
                warnings=tuple(ctx.warnings),
            )
        except Exception as error:
            if not self.manager.host.is_out_of_memory(error):
                raise
            ctx.close()
            self.manager.release_after_oom()
            if isinstance(error, NotEnoughMemory):
                raise
            raise NotEnoughMemory(f"{phase.label}: {error}; shorten the text, or free memory of the device") from error
        finally:
            ctx.close()
            self._watch()
        return artifacts(spec, phase, result, (*reports_of(inputs), report))

    def speak(self, files: ModelFiles, request: SpeakRequest, callbacks: Callbacks | None = None) -> Output:
        """Run every phase from the request's text to audio, the same phases as the Speak node."""
        spec = self.engines.spec(files.ref.engine)
        supplied = {"text": request.text, **request.inputs}
        steps = speak_chain(spec, supplied, request.options)
        made: dict[str, tuple[Artifact, ...]] = {}
        for step in steps:
            inputs = step.inputs(supplied, made)
            options = step.options(request.options)
            made[step.phase.id] = self.run_phase(files, step.phase.id, inputs, options, request.seed, callbacks)
        return finished(next(item for item in made[steps[-1].phase.id] if isinstance(item.value, Audio)))

    def _longest_idle_s(self) -> float:
        return self.settings.integer("compute.unload_after_minutes") * MINUTE_S

    def _watch(self) -> None:
        """Where it serves, models that nobody uses go when it is time, whether or not another run comes."""
        if self.manager.host.serves and (longest_s := self._longest_idle_s()):
            self._idle.within(longest_s)

    def _let_idle_go(self) -> float | None:
        """Let go of what is due; returns after how many seconds to ask again, if there is anything to ask for."""
        if not self.manager.host.rests():
            return ASK_AGAIN_S
        if self.unload_idle():
            self.manager.empty_cache()
            self.manager.host.let_go()
        last_used_s = [model.last_used_s for model in self.models]
        longest_s = self._longest_idle_s()
        if not last_used_s or not longest_s:
            return None
        left_s = min(last_used_s) + longest_s - time.monotonic()
        return left_s if left_s > 0 else ASK_AGAIN_S

    @contextmanager
    def _job(self, ctx: PhaseContext) -> Iterator[None]:
        """One of the `compute.gpu_jobs` requests that may use a device at once."""
        device = self.manager.device
        if device.plain:
            yield
            return
        with self._jobs.job(device.name, self.manager.policy.gpu_jobs, ctx.check):
            yield

    def _manager(self, given: Host | None) -> ModelManager:
        settings = self.settings
        simulated_bytes = settings.integer("compute.simulate_vram_mb") << 20
        host = given or StandaloneHost(checked_device(settings.text("compute.device")))
        device_type = host.device().partition(":")[0]
        simulated = host.device() if device_type == "cpu" else "cpu"
        devices = DeviceService({simulated: simulated_bytes} if simulated_bytes else None, strict=True)
        folder = Path(settings.text("paths.cache") or DEFAULT_CACHE).expanduser()
        calibration = Calibration(folder / "memory" / "calibration.json")
        return ModelManager(
            host, devices, lambda: self._policies(device_type, host.vram_mode() or "normal"), calibration
        )

    def _load(self, files: ModelFiles) -> LoadedModel:
        spec = self.engines.spec(files.ref.engine)
        dtype = self.settings.text("compute.dtype")
        manager = self.manager
        loader = Loader(
            spec,
            files.ref,
            manager.devices,
            device=manager.host.device(),
            plain=manager.device.plain,
            dtype="" if dtype == "auto" else dtype,
        )
        loaded = LoadedModel(files.ref, self.engines.module(spec).load(files, loader), loader.handles)
        for handle in loaded.handles:
            LOG.debug("%s, %s: %s bytes", loaded.id, handle.name, f"{handle.size_bytes:,}")
        return loaded


def _policies(settings: Settings) -> Callable[[str, VramMode], VramPolicy]:
    """The policy that these settings make for a type of device and what `auto` means there."""
    return cache(lambda device_type, mode: policy_from(settings, device_type, mode, os.environ))


def _looks_like_path(model: str) -> bool:
    return Path(model).exists() or "/" in model or "\\" in model


def _call(
    engines: Engines,
    spec: EngineSpec,
    phase: Phase,
    ctx: PhaseContext,
    loaded: LoadedModel,
    values: Mapping[str, object],
) -> object:
    module = engines.module(spec)
    function = getattr(module, phase.id)
    if spec.phased:
        return function(ctx, loaded.model, **values)
    with ctx.use(loaded.handles, module.memory_required(loaded.model, **values)):
        return function(ctx, loaded.model, **values)
