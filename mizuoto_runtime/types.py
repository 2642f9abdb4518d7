"""Values that pass between phases, and what is reported about them. Importable without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["sequence", "oneshot"]
"""How a component runs: once per token, or once per input."""


class ModelRef(NamedTuple):
    """Which model a request wants: names only, so that holding one (a cached node output) holds no memory."""

    engine: str
    model: str


@dataclass(frozen=True)
class Audio:
    """Sound. samples: (channels, length) float32 on the CPU, nominally within -1 … 1; rate_hz: samples a second.

    An input that takes several recordings may get (clips, channels, length).
    """

    samples: Tensor
    rate_hz: int

    @property
    def duration_seconds(self) -> float:
        return self.samples.shape[-1] / self.rate_hz


@dataclass(frozen=True)
class Progress:
    """How far a request is: `done` of `total` steps of the phase that runs now."""

    phase: str
    done: int
    total: int


def _no_progress(progress: Progress) -> None:
    pass


def _never_cancelled() -> None:
    pass


@dataclass(frozen=True)
class Callbacks:
    """How a request speaks to whoever made it.

    progress: told of each step. check: raises to cancel the request; called often, so it must be cheap.
    """

    progress: Callable[[Progress], None] = _no_progress
    check: Callable[[], None] = _never_cancelled


@dataclass(frozen=True, kw_only=True)
class ComponentMemory:
    """One component's weights: all of them, and those on the device."""

    size_bytes: int
    loaded_bytes: int


@dataclass(frozen=True, kw_only=True)
class MemoryReport:
    """What one phase held and moved on the device that it ran on (R1).

    partial: per component that wasn't whole, why not, and the figures weighed. peak_bytes: the most that its weights,
    their slots and, where the device tells, its working memory took at once; None on a plain CPU.
    """

    device: str
    components: Mapping[str, ComponentMemory] = field(default_factory=dict)
    streamed_bytes: int = 0
    partial: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class PhaseReport:
    """What happened in one phase of a request."""

    engine: str
    model: str
    phase: str
    seconds: float
    seed: int | None
    options: Mapping[str, object]
    memory: MemoryReport
    applied: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Artifact:
    """A phase's output on its way to the next: the value, its type, and the reports of all phases that made it."""

    type: str
    value: object
    reports: tuple[PhaseReport, ...] = ()


@dataclass(frozen=True)
class Output:
    """A finished request: the audio and its `meta` (JSON types only)."""

    audio: Audio
    meta: Mapping[str, object]
