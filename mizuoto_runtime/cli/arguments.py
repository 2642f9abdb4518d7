"""What several commands share: settings, the request to speak, progress on the terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..engines.registry import ENGINES, all_engines
from ..engines.spec import EngineSpec, Param
from ..errors import InputError
from ..memory.policy import ALLOCATOR_VARIABLE, allocator_conf
from ..settings import SETTINGS, Settings, resolve
from ..types import Progress

if TYPE_CHECKING:
    from ..session import SpeakRequest
    from ..types import Callbacks

    Commands = argparse._SubParsersAction["Parser"]


class Parser(argparse.ArgumentParser):
    """Reports bad use in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see: {self.prog} --help)")


def add_settings(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(setting.name for setting in SETTINGS)
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help=f"one of: {names}")
    parser.add_argument("--config", type=Path, help="the mizuoto.toml to read")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="torch device, as cpu or cuda:0")


def explicit_settings(namespace: argparse.Namespace) -> dict[str, str]:
    return _pairs(namespace.setting, "--setting")


def settings_of(namespace: argparse.Namespace) -> Settings:
    """The settings in force for a command, its own flags last."""
    return with_device(resolve(explicit_settings(namespace), config=namespace.config), namespace)


def with_device(settings: Settings, namespace: argparse.Namespace) -> Settings:
    """The settings with what --device says."""
    return settings if namespace.device is None else settings.changed({"compute.device": namespace.device}, "--device")


def choose_allocator(settings: Settings) -> None:
    """Tell torch which CUDA allocator to use. Only before torch is imported, in a process that is this command's."""
    conf = allocator_conf(settings, os.environ)
    if conf is not None and "torch" not in sys.modules:
        os.environ[ALLOCATOR_VARIABLE] = conf


def add_request(parser: argparse.ArgumentParser, *, text: str | None = None) -> None:
    """The flags of one request. text: what is spoken if nothing is given; None: it must be given."""
    parser.add_argument("--engine", required=True, help=f"one of: {', '.join(ENGINES)}")
    parser.add_argument("--model", required=True, help="an installed model's name, or a path")
    parser.add_argument("--text", required=text is None, default=text)
    parser.add_argument("--language", help="same as --option language=…")
    parser.add_argument("--reference", type=Path, help="WAV file of the voice to clone")
    parser.add_argument("--reference-text", help="what is said in the reference")
    parser.add_argument("--recording", type=Path, help="WAV file of which spans are spoken anew")
    parser.add_argument("--prompt", type=Path, help="WAV file that the speech goes on from")
    parser.add_argument("--prompt-text", help="what is said in the prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=JSON", help="an option of the engine")
    add_device(parser)
    add_settings(parser)


def request_of(namespace: argparse.Namespace, spec: EngineSpec) -> SpeakRequest:
    """The request that the flags of `add_request` describe."""
    from ..audio.wav import read_wav
    from ..session import SpeakRequest
    from ..types import Audio

    options = {name: _option(spec, name, text) for name, text in _pairs(namespace.option, "--option").items()}
    if namespace.language is not None:
        options["language"] = namespace.language
    inputs: dict[str, object] = {}
    for name in ("reference", "recording", "prompt"):
        path = getattr(namespace, name)
        if path is not None:
            inputs[name] = Audio(*read_wav(path))
    for name in ("reference_text", "prompt_text"):
        text = getattr(namespace, name)
        if text is not None:
            inputs[name] = text
    return SpeakRequest(text=namespace.text, seed=namespace.seed, inputs=inputs, options=options)


def terminal_callbacks() -> Callbacks:
    from ..types import Callbacks

    return Callbacks(progress=show_progress) if sys.stderr.isatty() else Callbacks()


def show_progress(progress: Progress) -> None:
    end = "\n" if progress.done == progress.total else ""
    print(f"\r{progress.phase} {progress.done}/{progress.total}", end=end, file=sys.stderr, flush=True)


def options_help() -> str:
    lines = ["options of the engines:"]
    for spec in all_engines():
        params = {param.name: param for phase in spec.phases for param in phase.params}
        for param in params.values():
            lines.append(f"  {spec.id}: {param.name}={json.dumps(param.default)}  {param.tooltip}")
    return "\n".join(lines)


def _pairs(items: Sequence[str], flag: str) -> dict[str, str]:
    pairs = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator or not name.strip():
            raise InputError(f"{flag} {item!r} must have the form name=value")
        pairs[name.strip()] = value
    return pairs


def _option(spec: EngineSpec, name: str, text: str) -> object:
    """The JSON value in `text`; a text option also takes the bare text."""
    params: dict[str, Param] = {param.name: param for phase in spec.phases for param in phase.params}
    textual = name in params and params[name].kind in ("text", "choice")
    try:
        value: object = json.loads(text)
    except ValueError:
        value = text
    return text if textual and not isinstance(value, str) else value
