"""Working memory of phases: what to reserve for an estimate, and what was learnt from measuring (W3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .calibration import Calibration, Workload
from .device import Device
from .handle import ModelHandle
from .workspace import Measurement, PeakMeter, WorkingMemoryMeter


@dataclass(frozen=True)
class PhaseId:
    """Which phase runs: of which engine, for which model."""

    engine: str = ""
    model: str = ""
    phase: str = ""


class WorkingMemory:
    """Where a device can tell its peaks, estimates are corrected by what was measured; elsewhere they stand.

    label: a device's model, and what computes there. variant: settings that change how much memory a phase takes.
    """

    def __init__(
        self,
        calibration: Calibration,
        label: Callable[[Device], str],
        variant: Callable[[], str],
        meter: WorkingMemoryMeter | None = None,
    ) -> None:
        self.meter = meter or PeakMeter()
        self.calibration = calibration
        self._label = label
        self._variant = variant

    def key(
        self, phase: PhaseId, step: str, handles: Sequence[ModelHandle], device: Device, estimated_bytes: int
    ) -> str | None:
        """What a phase's estimate is remembered under; None where nothing can be measured."""
        if not self.meter.measures(device):
            return None
        workload = Workload(
            engine=phase.engine,
            component="+".join(handle.name for handle in handles),
            phase=phase.phase,
            step=step,
            model=phase.model,
            weights="+".join(handle.fingerprint for handle in handles),
            device=self._label(device),
            variant=self._variant(),
        )
        return workload.key(estimated_bytes)

    def needed_bytes(self, key: str | None, estimated_bytes: int) -> int:
        """The estimate times its factor."""
        return estimated_bytes if key is None else round(estimated_bytes * self.calibration.factor(key))

    def learn(self, key: str, measurement: Measurement, estimated_bytes: int, *, well: bool) -> int | None:
        """End a measurement and, if the phase ended `well`, remember how its estimate compares.

        Returns the bytes measured, None if they can't be told from another request's.
        """
        measured_bytes = self.meter.stop(measurement)
        if well and measured_bytes is not None:
            self.calibration.note(key, estimated_bytes, measured_bytes)
        return measured_bytes
