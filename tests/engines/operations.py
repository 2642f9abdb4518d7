"""The check that an engine survives memory running out in any operation, not only where weights are placed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mizuoto_runtime.engines.registry import BUILT_IN, Engines
from mizuoto_runtime.errors import NotEnoughMemory
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.session import Session, SpeakRequest
from tests.engines.streaming import Expected, check_books, exact_size, simulated


def check_failing_operations(
    library: ModelLibrary,
    find: Callable[[Session], ModelFiles],
    request: SpeakRequest,
    *,
    share: str,
    first: int = 1,
    step: int,
    engines: Engines = BUILT_IN,
) -> list[bool]:
    """Let memory run out in every `step`-th of torch's operations in turn; whether each of those runs was exact.

    An operation is a kernel, a copy or an allocation, of the engine or of the memory runtime; views don't count. A run
    that isn't exact is one clear error, and the next one is exact.
    """
    expected = Expected(library, find, request, engines)
    exact: list[bool] = []
    for number in count(first, step):
        session = simulated(library, engines=engines)
        session.open(find(session))
        with exact_size(session, expected.size_bytes[share]):
            operations = FailOperation(number)
            try:
                with operations:
                    assert torch.equal(session.speak(find(session), request).audio.samples, expected.samples), (
                        f"{number}"
                    )
                exact.append(True)
            except (MemoryError, NotEnoughMemory):
                exact.append(False)
            check_books(session, find(session), request, expected.samples)
        if not operations.failed:
            break
    return exact[:-1]


class FailOperation(TorchDispatchMode):
    """Fails one operation that may take memory, the one with this number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number
        self.failed = False

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.left -= _takes_memory(func, kwargs or {})
        if self.left == 0 and not self.failed:
            self.failed = True
            raise MemoryError(f"simulated failure in {func}")
        return func(*args, **(kwargs or {}))


def _takes_memory(func: Any, kwargs: Mapping[str, Any]) -> bool:
    views = any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
    return not views and kwargs.get("device") != torch.device("meta")
