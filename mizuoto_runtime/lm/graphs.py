"""Steps that are captured once and replayed, so that a GPU needn't be told each of their thousand operations (S8).

What a step is: a function of tensors of fixed shapes that waits for nothing, and whose other tensors stay where they
are. Weights may stream, if from page-locked RAM: their copies are part of the graph. Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from ..errors import MizuotoError

Result = TypeVar("Result")


class Placed(Protocol):
    """What is asked of a component's handle.

    graphable: whether a graph may be captured. placement: another number whenever weights may have moved. passed: what
    its units did so far; a difference of two is what a replay does.
    """

    @property
    def graphable(self) -> bool: ...

    @property
    def placement(self) -> int: ...

    @property
    def passed(self) -> Any: ...

    def drop_copies(self) -> None: ...

    def replayed(self, recorded: Any) -> None: ...

    def uncount(self, recorded: Any) -> None: ...


class Capturer(Protocol):
    """What makes graphs."""

    def capture(self, fn: Callable[[], Result]) -> tuple[Callable[[], None], Result]:
        """Record what `fn` does, without doing it: a function that does it, and where its results will lie."""


@dataclass
class _Graph(Generic[Result]):
    """inputs: where a replay reads; result: where it writes. placement: of the weights then; passed: by a replay."""

    placement: int
    inputs: tuple[Tensor, ...]
    replay: Callable[[], None]
    result: Result
    passed: Any


class GraphedSteps:
    """Runs steps of one component: the first time as they are, then captured and replayed.

    warn: told once if capturing fails; from then on steps run as they are.
    """

    def __init__(self, handle: Placed, capturer: Capturer, warn: Callable[[str], None]) -> None:
        self._handle, self._capturer, self._warn = handle, capturer, warn
        self._graphs: dict[Hashable, _Graph[object]] = {}
        self._warmed: dict[Hashable, int] = {}
        self._failed = False

    def run(self, step: Hashable, fn: Callable[..., Result], *inputs: Tensor) -> Result:
        """`fn(*inputs)`; what it gives is valid until the step's next run.

        step: tells steps apart that read or write other tensors besides their inputs.
        """
        key = step, tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in inputs)
        graph = self._current(key)
        if graph is None:
            graph = self._captured(key, fn, inputs)
        if graph is None:
            return fn(*inputs)
        for static, tensor in zip(graph.inputs, inputs, strict=True):
            static.copy_(tensor)
        graph.replay()
        self._handle.replayed(graph.passed)
        return graph.result  # type: ignore[return-value]

    def drop(self) -> None:
        """Let go of all graphs and their memory."""
        self._graphs.clear()
        self._warmed.clear()

    def _current(self, key: Hashable) -> _Graph[object] | None:
        """The step's graph, unless weights moved since."""
        graph = self._graphs.get(key)
        if graph is not None and graph.placement == self._handle.placement:
            return graph
        self._graphs.pop(key, None)
        return None

    def _captured(
        self, key: Hashable, fn: Callable[..., object], inputs: tuple[Tensor, ...]
    ) -> _Graph[object] | None:
        """The step's new graph; None if it can't be had, or before the step ran once with the weights as they lie."""
        placement = self._handle.placement
        if self._failed or not self._handle.graphable:
            return None
        if self._warmed.get(key) != placement:
            self._warmed[key] = placement
            return None
        statics = tuple(tensor.clone() for tensor in inputs)
        self._handle.drop_copies()
        before = self._handle.passed
        try:
            replay, result = self._capturer.capture(lambda: fn(*statics))
        except MizuotoError:
            raise
        except RuntimeError as error:
            self._give_up(error)
            return None
        finally:
            self._handle.drop_copies()
        passed = self._handle.passed - before
        self._handle.uncount(passed)
        self._graphs[key] = graph = _Graph(placement, statics, replay, result, passed)
        return graph

    def _give_up(self, error: RuntimeError) -> None:
        self._failed = True
        self.drop()
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        self._warn(f"a CUDA graph couldn't be captured ({first_line}); the same result, only slower")
