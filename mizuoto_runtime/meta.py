"""An output's `meta`: what was asked, what was done, how long it took, what memory it used. JSON types only."""

from __future__ import annotations

from collections.abc import Sequence

from .types import Artifact, Audio, ComponentMemory, Output, PhaseReport

BYTES_PER_MB = 1_000_000


def finished(artifact: Artifact) -> Output:
    """The audio of a last phase with its meta."""
    if not isinstance(artifact.value, Audio):
        raise TypeError(f"{artifact.type} isn't audio")
    return Output(artifact.value, output_meta(artifact.value, artifact.reports))


def output_meta(audio: Audio, reports: Sequence[PhaseReport]) -> dict[str, object]:
    """The meta of a finished request, from the reports of the phases that made it."""
    seconds = sum(report.seconds for report in reports)
    return {
        "engine": reports[-1].engine,
        "model": reports[-1].model,
        "sample_rate_hz": audio.rate_hz,
        "channels": audio.samples.shape[0],
        "length_samples": audio.samples.shape[-1],
        "duration_seconds": round(audio.duration_seconds, 6),
        "elapsed_seconds": round(seconds, 6),
        "real_time_factor": round(seconds / audio.duration_seconds, 6) if audio.samples.shape[-1] else None,
        "phases": [_phase(report) for report in reports],
        "memory": _memory(reports),
        "applied": {key: value for report in reports for key, value in report.applied.items()},
        "warnings": list(dict.fromkeys(text for report in reports for text in report.warnings)),
    }


def _phase(report: PhaseReport) -> dict[str, object]:
    seed = {} if report.seed is None else {"seed": report.seed}
    return {
        "engine": report.engine,
        "model": report.model,
        "phase": report.phase,
        "seconds": round(report.seconds, 6),
        "device": report.memory.device,
        **seed,
        "options": dict(report.options),
    }


def _memory(reports: Sequence[PhaseReport]) -> dict[str, object]:
    components: dict[tuple[str, str, str], ComponentMemory] = {}
    for report in reports:
        for name, component in report.memory.components.items():
            components[report.engine, report.model, name] = component
    partial = {name: dict(why) for report in reports for name, why in report.memory.partial.items()}
    peaks = [report.memory.peak_bytes for report in reports if report.memory.peak_bytes is not None]
    return {
        "streamed_mb": _megabytes(sum(report.memory.streamed_bytes for report in reports)),
        "loaded_mb": _megabytes(sum(component.loaded_bytes for component in components.values())),
        "size_mb": _megabytes(sum(component.size_bytes for component in components.values())),
        **({"peak_mb": _megabytes(max(peaks))} if peaks else {}),
        **({"partial": partial} if partial else {}),
    }


def _megabytes(size_bytes: int) -> float:
    return round(size_bytes / BYTES_PER_MB, 3)
