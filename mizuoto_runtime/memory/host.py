"""How a surrounding application shares a device with the runtime."""

from __future__ import annotations

from typing import Protocol


class Host(Protocol):
    """What the runtime asks of the application around it. Called on the thread that runs the request.

    shares_device: others use the device too and can't ask for it back, so weights leave it when their phase ends.
    """

    shares_device: bool

    def device(self) -> str:
        """Where models run, as torch names it ("cpu", "cuda:0")."""

    def make_room(self, size_bytes: int, device: str) -> None:
        """Let go of idle memory of the application until `size_bytes` are free on `device`, as far as it can."""


class StandaloneHost:
    """No application around the runtime: the device is its own."""

    shares_device = False

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def device(self) -> str:
        return self._device

    def make_room(self, size_bytes: int, device: str) -> None:
        """Nothing else here holds memory."""
