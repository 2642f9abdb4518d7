"""CUDA graphs through torch: the one place that captures them. Not yet run on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


class CudaCapturer:
    """Captures on `device`, a CUDA or ROCm one. Other threads may go on using it meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def capture(self, fn: Callable[[], Result]) -> tuple[Callable[[], None], Result]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = fn()
        return graph.replay, result
