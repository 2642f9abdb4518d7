"""What travels on wires: ComfyUI's AUDIO ↔ the runtime's Audio, options, and checks of what arrives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..mizuoto_runtime.engines.spec import AUDIO, MODEL, TEXT, EngineSpec, Param, Phase, Port
from ..mizuoto_runtime.errors import InputError, MizuotoError
from ..mizuoto_runtime.meta import finished
from ..mizuoto_runtime.types import Artifact, Audio, ModelRef
from .declare import engine_params

if TYPE_CHECKING:
    from torch import Tensor


class SpeakOptions(NamedTuple):
    """What an Options node gives: the engine's parameters that differ from their defaults, or links to values."""

    engine: str
    values: Mapping[str, object]


def speak_options(spec: EngineSpec, values: Mapping[str, object]) -> SpeakOptions:
    """The options that an Options node with these inputs stands for. InputError for a value out of range."""
    params = [param for param in engine_params(spec) if param.name in values]
    changed = {param.name: values[param.name] for param in params if _differs(param, values[param.name])}
    return SpeakOptions(spec.id, changed)


def _differs(param: Param, value: object) -> bool:
    return is_link(value) or param.check(value) != param.check(param.default)


def is_link(value: object) -> bool:
    """Whether an input holds the output of another node: [node id, output number]."""
    return isinstance(value, list)


def audio_to_comfy(audio: Audio) -> dict[str, object]:
    """ComfyUI's AUDIO: `waveform` (1, channels, length) float32 on the CPU, and `sample_rate` in Hz."""
    return {"waveform": audio.samples.unsqueeze(0), "sample_rate": audio.rate_hz}


def audio_from_comfy(value: object, *, batch: bool = False) -> Audio:
    """Audio (channels, length) of an AUDIO with one clip; InputError says what is wrong with another value.

    batch: several clips may come, and are (clips, channels, length).
    """
    if not isinstance(value, Mapping) or "waveform" not in value or "sample_rate" not in value:
        raise InputError(f"AUDIO must hold 'waveform' and 'sample_rate'; this is {_shown(value)}")
    waveform, rate_hz = value["waveform"], value["sample_rate"]
    if isinstance(rate_hz, bool) or not isinstance(rate_hz, int) or rate_hz <= 0:
        raise InputError(f"the sample rate of the AUDIO is {rate_hz!r}; it must be a whole number of Hz above 0")
    return Audio(_clips(waveform, batch=batch), rate_hz)


def _clips(waveform: object, *, batch: bool) -> Tensor:
    from torch import Tensor

    if not isinstance(waveform, Tensor):
        raise InputError(f"the AUDIO's waveform is {_shown(waveform)}; it must be a tensor (clips, channels, samples)")
    shape = tuple(waveform.shape)
    if len(shape) != 3 or 0 in shape:
        raise InputError(f"the AUDIO's waveform has the shape {shape}; it must be (clips, channels, samples)")
    if shape[0] != 1 and not batch:
        raise InputError(f"the AUDIO holds {shape[0]} clips; connect a single one")
    clips = waveform.detach().cpu().float()
    if not bool(clips.isfinite().all()):
        raise InputError("the AUDIO has samples that aren't finite numbers; make it again")
    return clips[0] if len(clips) == 1 else clips


def model_ref(value: object, spec: EngineSpec | None = None) -> ModelRef:
    """The model that a `model` input names; with `spec` it must be one of that engine."""
    wanted = "a Model node" if spec is None else f"the {spec.label} Model node"
    if not isinstance(value, ModelRef):
        raise InputError(f"the input 'model' is {_shown(value)}; connect {wanted}")
    if spec is not None and value.engine != spec.id:
        raise InputError(f"the model {value.model!r} is of engine {value.engine!r}; connect {wanted}")
    return value


def phase_inputs(phase: Phase, values: Mapping[str, object]) -> dict[str, object]:
    """The node's values of a phase's ports, as the session takes them. An empty optional text counts as left out."""
    ports = [port for port in phase.takes if port.type != MODEL and _is_given(port, values.get(port.name))]
    return {port.name: _from_wire(port, values[port.name]) for port in ports}


def phase_options(phase: Phase, values: Mapping[str, object]) -> dict[str, object]:
    return {param.name: values[param.name] for param in phase.params if param.name in values}


def phase_outputs(phase: Phase, made: tuple[Artifact, ...]) -> tuple[object, ...]:
    """What the phase's node gives: artifacts as they are, audio as AUDIO, and a report beside audio."""
    values = [audio_to_comfy(artifact.value) if isinstance(artifact.value, Audio) else artifact for artifact in made]
    spoken = next((item for port, item in zip(phase.gives, made, strict=True) if port.type == AUDIO), None)
    return (*values, *(() if spoken is None else (report_text(finished(spoken).meta),)))


def phase_ui(phase: Phase, made: tuple[Artifact, ...]) -> dict[str, object] | None:
    """What the node's badge in the editor shows; None for a phase that gives no audio."""
    spoken = next((item for port, item in zip(phase.gives, made, strict=True) if port.type == AUDIO), None)
    if spoken is None:
        return None
    meta = finished(spoken).meta
    memory = cast(Mapping[str, Any], meta["memory"])
    told = {
        "duration_seconds": meta["duration_seconds"],
        "real_time_factor": meta["real_time_factor"],
        "peak_mb": memory.get("peak_mb"),
        "reasons": sorted({str(part["reason"]) for part in memory.get("partial", {}).values()}),
    }
    return {"mizuoto": [told]}


def report_text(meta: Mapping[str, object]) -> str:
    """`meta` as JSON that can be written as UTF-8 whatever a file was called."""
    return writable(json.dumps(meta, indent=2, ensure_ascii=False))


def writable(text: str) -> str:
    """`text` with half surrogate pairs spelled out: ComfyUI's log can't write them, and its worker dies of it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def writable_errors() -> Iterator[None]:
    """The runtime's errors with messages that every log can write."""
    try:
        yield
    except MizuotoError as error:
        error.args = tuple(writable(part) if isinstance(part, str) else part for part in error.args)
        raise


def _is_given(port: Port, value: object) -> bool:
    return value is not None and not (port.optional and port.type == TEXT and value == "")


def _from_wire(port: Port, value: object) -> object:
    return audio_from_comfy(value, batch=port.batch) if port.type == AUDIO else value


def _shown(value: object) -> str:
    """A short picture of a value of the wrong kind: itself if it is a plain one, else its type."""
    return ascii(value)[:80] if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
