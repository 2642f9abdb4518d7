"""Calls of a module go through a gate first, without hooks: its class is exchanged for a subclass of the same name.

A subclass costs one Python call where hooks cost several, runs before weight_norm's own hooks, and sees every way out
of a call, also those that aren't exceptions. Copies and pickles of the module are of the original class.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
from torch import nn
from torch.nn.utils import parametrize

GATE = "_mizuoto_gate"
How = Literal["early", "late", "answered", "guarded"]


class Gate(Protocol):
    """What is told of a module's calls."""

    def enter(self) -> None: ...

    def leave(self) -> None: ...


def intercept(module: nn.Module, gate: Gate) -> None:
    """Let `gate` know of each call of `module` until `release`."""
    early = bool(module._forward_pre_hooks)
    module.__dict__[GATE] = gate
    module.__class__ = _gated(original_class(module), early)


def answer(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Let `forward` answer the calls of `module` in its own forward's stead until `release`."""
    module.__dict__[GATE] = forward
    module.__class__ = _answered(original_class(module))


def guard(module: nn.Module) -> None:
    """Refuse until `release` to convert `module`, or to hang other weights in it, where parts of it are gated."""
    if GATE not in module.__dict__:
        module.__dict__[GATE] = None
        module.__class__ = _subclass(original_class(module), "guarded", dict)


def release(module: nn.Module) -> None:
    """Undo `intercept`, `answer` or `guard`."""
    if GATE in module.__dict__:
        del module.__dict__[GATE]
        module.__class__ = original_class(module)


def original_class(module: nn.Module) -> type[nn.Module]:
    kind = type(module)
    return kind.__mro__[1] if "_mizuoto_gated" in kind.__dict__ else kind


def _gated(original: type[nn.Module], early: bool) -> type[nn.Module]:
    """early: the gate also goes before the module's own pre-hooks, which may read weights."""
    return _subclass(original, "early" if early else "late", lambda: _gated_members(original, early))


def _answered(original: type[nn.Module]) -> type[nn.Module]:
    return _subclass(original, "answered", lambda: {"forward": run_eagerly(_answer)})


def _answer(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return self.__dict__[GATE](*args, **kwargs)


def _gated_members(original: type[nn.Module], early: bool) -> dict[str, Any]:
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        gate = self.__dict__[GATE]
        gate.enter()
        try:
            return original.forward(self, *args, **kwargs)
        finally:
            gate.leave()

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        gate = self.__dict__[GATE]
        gate.enter()
        try:
            return original.__call__(self, *args, **kwargs)
        finally:
            gate.leave()

    run_eagerly(forward)
    return {"forward": forward, **({"__call__": run_eagerly(call)} if early else {})}


def _subclass(
    original: type[nn.Module], how: How, members: Callable[[], dict[str, Any]]
) -> type[nn.Module]:
    """The subclass of a kind, kept while a module is of it: a parametrised module's class would keep the module."""
    made = _made.setdefault(original, weakref.WeakValueDictionary())
    kind = made.get(how)
    if kind is None:
        kind = made[how] = _new_subclass(original, members())
    return kind


_Kinds = weakref.WeakValueDictionary[How, type[nn.Module]]
_made: weakref.WeakKeyDictionary[type[nn.Module], _Kinds] = weakref.WeakKeyDictionary()


def _new_subclass(original: type[nn.Module], members: dict[str, Any]) -> type[nn.Module]:
    common = {
        "_mizuoto_gated": True,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__deepcopy__": _deepcopy,
        "__reduce_ex__": _reduce,
        "_apply": _refuse_conversion,
        "__setattr__": _set_attribute,
        "load_state_dict": _load_state_dict,
    }
    return type(original.__name__, (original,), common | members)


def run_eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function so that torch.compile leaves it and whatever it calls alone (S8).

    As torch.compiler.disable does, which would import all of the compiler. Before torch 2.7 only the call is marked.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "_FrameExecStrategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function


def _plain_state(module: nn.Module) -> Any:
    """What the original class would copy or pickle: a recurrent layer, for one, leaves its weak references out."""
    own = getattr(original_class(module), "__getstate__", None)
    state = module.__dict__ if own is None else own(module)
    return {name: value for name, value in state.items() if name != GATE} if isinstance(state, dict) else state


def _deepcopy(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    plain: nn.Module = original_class(module).__new__(original_class(module))
    memo[id(module)] = plain
    if parametrize.is_parametrized(module):  # these can be copied, but not pickled
        state = {name: value for name, value in module.__dict__.items() if name != GATE}
        plain.__dict__.update(copy.deepcopy(state, memo))
    else:
        plain.__setstate__(copy.deepcopy(_plain_state(module), memo))  # type: ignore[no-untyped-call]
    return plain


def _reduce(module: nn.Module, protocol: Any) -> Any:
    return _empty, (original_class(module),), _plain_state(module)


def _empty(kind: type[nn.Module]) -> nn.Module:
    module: nn.Module = kind.__new__(kind)
    return module


def _refuse_conversion(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    raise _refusal(module)


def _set_attribute(module: nn.Module, name: str, value: Any) -> None:
    """A new weight would hang there until the unit is left, and be gone."""
    present = module._parameters.get(name)
    if isinstance(value, nn.Parameter) and present is not None and present is not value:
        raise _refusal(module)
    original_class(module).__setattr__(module, name, value)


def _load_state_dict(module: nn.Module, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
    if assign:
        raise _refusal(module)
    return original_class(module).load_state_dict(module, state_dict, strict)


def _refusal(module: nn.Module) -> RuntimeError:
    return RuntimeError(
        f"the weights of this {original_class(module).__name__} are being streamed, so they can't be converted, moved "
        "or exchanged; unload the model first, or use handle.replace(module)"
    )
