"""Counts the bytes of tensors that are alive, exactly: every storage that an operation makes, until it is let go of."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """While active, `current_bytes` and `peak_bytes` of the storages made since; also a source of peak statistics.

    What a kernel allocates and frees inside one operation isn't seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current_bytes = 0
        self.peak_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self._note(tree_leaves((args, kwargs)), counted=False)
        result = func(*args, **kwargs)
        self._note(tree_leaves(result), counted=True)
        return result

    def _note(self, leaves: Iterable[object], *, counted: bool) -> None:
        for leaf in leaves:
            if not isinstance(leaf, Tensor) or leaf.is_meta:
                continue
            storage = leaf.untyped_storage()
            if storage._cdata in self._known:
                continue
            size_bytes = storage.nbytes() if counted else 0
            self._known.add(storage._cdata)
            self.current_bytes += size_bytes
            self.peak_bytes = max(self.peak_bytes, self.current_bytes)
            weakref.finalize(storage, self._freed, storage._cdata, size_bytes).atexit = False

    def _freed(self, key: int, size_bytes: int) -> None:
        self._known.discard(key)
        self.current_bytes -= size_bytes
