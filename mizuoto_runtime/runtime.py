"""What a session holds now (R2), and what one may do about it from outside: let models go, pin them.

Nothing here waits for a placement or for a model that is being loaded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypedDict

from .memory.report import ComponentFacts, DeviceFacts, RamFacts, component_facts, device_facts

if TYPE_CHECKING:
    from .loader import LoadedModel
    from .session import Session


class ModelFacts(TypedDict):
    """A loaded model; figures in bytes, the sums of its components'. idle_seconds: since its last run, 0 while busy.

    id: engine:model. pinned: it gives way last.
    """

    id: str
    engine: str
    engine_label: str
    model: str
    busy: bool
    idle_seconds: float
    pinned: bool
    size_bytes: int
    loaded_bytes: int
    streamed_bytes: int
    host_bytes: int
    components: list[ComponentFacts]


class DeviceShares(TypedDict):
    """Who holds how much of the device where phases run, in bytes, which are `total_bytes` together.

    own_bytes: this runtime's weights and slots; application_bytes: models of the application around it; other_bytes:
    everything else, working memory too.
    """

    total_bytes: int
    own_bytes: int
    application_bytes: int
    other_bytes: int
    free_bytes: int


class RuntimeFacts(TypedDict):
    """What is held. shares: None on a plain CPU, which has RAM only."""

    device: DeviceFacts
    shares: DeviceShares | None
    ram: RamFacts
    models: list[ModelFacts]


def runtime_facts(session: Session) -> RuntimeFacts:
    """Everything that the session holds now, the model that was used last first."""
    manager = session.manager
    device = device_facts(manager.devices, (manager.host.device(),))[0]
    return RuntimeFacts(
        device=device,
        shares=_shares(session, device),
        ram=manager.memory.ram_facts(),
        models=[_model(session, model) for model in reversed(list(session.models))],
    )


def _shares(session: Session, facts: DeviceFacts) -> DeviceShares | None:
    total, free = facts["total_bytes"], facts["free_bytes"]
    if total is None or free is None:
        return None
    manager = session.manager
    own = manager.room.held_bytes(manager.device)
    application = manager.host.held_bytes(manager.device)
    return DeviceShares(
        total_bytes=total,
        own_bytes=own,
        application_bytes=application,
        other_bytes=max(0, total - free - own - application),
        free_bytes=free,
    )


def _model(session: Session, model: LoadedModel) -> ModelFacts:
    manager = session.manager
    parts = [component_facts(handle, manager.device) for handle in model.handles]
    busy = model.busy
    return ModelFacts(
        id=model.id,
        engine=model.ref.engine,
        engine_label=session.engines.spec(model.ref.engine).label,
        model=model.ref.model,
        busy=busy,
        idle_seconds=0.0 if busy else round(time.monotonic() - model.last_used_s, 3),
        pinned=model.ref in manager.policy.pinned_models,
        size_bytes=sum(part["size_bytes"] for part in parts),
        loaded_bytes=sum(part["loaded_bytes"] for part in parts),
        streamed_bytes=sum(part["streamed_bytes"] for part in parts),
        host_bytes=sum(part["host_bytes"] for part in parts),
        components=parts,
    )
