"""The models that a session has loaded: which, how many, and which of them go.

Looking at them never waits for one that is being loaded.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

from .errors import ModelBusy, ModelNotLoaded
from .library import ModelFiles
from .loader import LoadedModel
from .types import ModelRef
from .weights.pages import give_back_freed

Key = tuple[object, ...]


class Models:
    """Loaded models, the least recently used first.

    load: brings one from its files. most: how many may stay. is_pinned: whether one is the last to go. form: the
    settings that loading heeds; with others a model is loaded anew.
    """

    def __init__(
        self,
        load: Callable[[ModelFiles], LoadedModel],
        most: Callable[[], int],
        is_pinned: Callable[[ModelRef], bool] = lambda ref: False,
        form: Callable[[], str] = str,
    ) -> None:
        self._load = load
        self._most = most
        self._is_pinned = is_pinned
        self._form = form
        self._loaded: OrderedDict[Key, LoadedModel] = OrderedDict()
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def __iter__(self) -> Iterator[LoadedModel]:
        with self._lock:
            return iter(list(self._loaded.values()))

    def open(self, files: ModelFiles) -> LoadedModel:
        """The loaded model; loaded once for all threads, and again if its files have changed."""
        key = (*files.ref, self._form(), *files.identity())
        with self._loading:
            model = self._touched(key)
            if model is None:
                self.drop(files.ref)
                model = self._load(files)
                self._enter(key, model)
        self._drop_too_many()
        return model

    def drop(self, ref: ModelRef) -> bool:
        """Let go of a model, which lives on until whoever uses it is done; whether it was loaded."""
        return self._drop_where(lambda model: model.ref == ref) > 0

    def drop_idle(self, since_s: float) -> int:
        """Let go of models that nobody has used after that time of the monotonic clock; returns how many."""
        return self._drop_where(lambda model: model.last_used_s < since_s and not model.busy)

    def drop_all(self) -> None:
        self._drop_where(lambda model: True)

    def idle(self, ref: ModelRef) -> LoadedModel:
        """The loaded model, if nothing uses it now. ModelBusy if something does; ModelNotLoaded if it isn't loaded."""
        model = next((model for model in self if model.ref == ref), None)
        if model is None:
            loaded = ", ".join(each.id for each in self)
            raise ModelNotLoaded(f"{':'.join(ref)} isn't loaded; loaded: {loaded or 'none'}")
        if model.busy:
            raise ModelBusy(f"{model.id} is in use; try again when its run has ended, or cancel that")
        return model

    def _touched(self, key: Key) -> LoadedModel | None:
        with self._lock:
            model = self._loaded.get(key)
            if model is not None:
                model.last_used_s = time.monotonic()
                self._loaded.move_to_end(key)
            return model

    def _enter(self, key: Key, model: LoadedModel) -> None:
        with self._lock:
            model.last_used_s = time.monotonic()
            self._loaded[key] = model

    def _drop_too_many(self) -> None:
        with self._lock:
            dropped = [self._loaded.pop(self._first_to_go()) for _ in range(len(self._loaded) - self._most())]
        _end(dropped)

    def _first_to_go(self) -> Key:
        """The model to let go of for the one that was opened last: rather an idle one, and a pinned one last."""
        *others, _ = self._loaded.items()
        return min(others, key=lambda item: (self._is_pinned(item[1].ref), item[1].busy))[0]

    def _drop_where(self, goes: Callable[[LoadedModel], bool]) -> int:
        with self._lock:
            keys = [key for key, model in self._loaded.items() if goes(model)]
            dropped = [self._loaded.pop(key) for key in keys]
        _end(dropped)
        return len(keys)


def _end(models: list[LoadedModel]) -> None:
    """Let go of them, outside the lock since that may take a while, and of the RAM that they held."""
    if models:
        models.clear()
        give_back_freed()
