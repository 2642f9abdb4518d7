"""The model of the random machine: a twin on the plain CPU for every handle, and which phases are open."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import nn

from mizuoto_runtime.memory.absent import in_ram
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.host import StandaloneHost
from tests.memory.tiny import STATEFUL, output


@dataclass(eq=False)
class Held:
    """A handle, and its twin on the plain CPU. Handles on one module share a twin."""

    handle: ModelHandle
    twin: nn.Module
    kind: str

    @property
    def module(self) -> nn.Module:
        return self.handle.module

    def compare(self) -> None:
        """Call both."""
        try:
            found = output(self.module)
        except BaseException:
            if self.kind == STATEFUL:
                self._catch_up()
            raise
        assert torch.equal(found, output(self.twin)), f"{self.kind} gives another output"

    def _catch_up(self) -> None:
        """A call was broken off: what it did to the buffers stays done."""
        for mine, other in zip(self.twin.buffers(), self.module.buffers(), strict=True):
            mine.copy_(other)

    def true_weights(self) -> None:
        """What hangs in RAM, or what a placeholder there stands for, is what the twin has."""
        for part, other in zip(self.module.modules(), self.twin.modules(), strict=True):
            for container, twins in ((part._parameters, other._parameters), (part._buffers, other._buffers)):
                for key, tensor in twins.items():
                    found = container[key]
                    assert tensor is found is None or torch.equal(in_ram(found), tensor), f"{key} is another"


@dataclass(eq=False)
class Open:
    """A phase that runs."""

    stack: ExitStack
    held: list[Held]


class Host(StandaloneHost):
    """Phases run on the device called `name`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def device(self) -> str:
        return self.name
