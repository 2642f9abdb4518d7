"""The command line: `speak`, `engines`, `models`. Exit code 2 for bad use, 1 for a failure, each with one line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .engines.registry import ENGINES, all_engines, engine_spec
from .engines.spec import EngineSpec, Param
from .errors import Cancelled, InputError, MizuotoError
from .settings import SETTINGS, resolve
from .types import Progress

if TYPE_CHECKING:
    from .memory.phase import Callbacks

BAD_USE = 2
FAILURE = 1
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Reports bad use in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see: {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        namespace = _parser().parse_args(arguments)
        status: int = namespace.run(namespace)
        return status
    except InputError as error:
        return _fail(error, BAD_USE)
    except (MizuotoError, OSError, MemoryError) as error:
        return _fail(error, FAILURE)
    except KeyboardInterrupt:
        return _fail(Cancelled("interrupted"), INTERRUPTED)
    except Exception as error:  # the edge: scripts are promised one line, whatever failed
        if os.environ.get("MIZUOTO_TRACEBACK"):
            raise
        return _fail(f"{type(error).__name__}: {error} (MIZUOTO_TRACEBACK=1 shows where)", FAILURE)


def _fail(error: object, status: int) -> int:
    line = " ".join(str(error).split()) or type(error).__name__
    print(f"error: {line}", file=sys.stderr)
    return status


def _parser() -> Parser:
    parser = Parser(prog="python -m mizuoto_runtime", description="Text to speech from the command line.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add_speak(commands)
    _add_engines(commands)
    _add_models(commands)
    return parser


def _add_speak(commands: argparse._SubParsersAction[Parser]) -> None:
    speak = commands.add_parser(
        "speak",
        help="speak a text into a WAV file",
        description="Speak a text into a 32-bit float WAV file at the voice's own sample rate.",
        epilog=_options_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    speak.add_argument("--engine", required=True, help=f"one of: {', '.join(ENGINES)}")
    speak.add_argument("--model", required=True, help="an installed model's name, or a path")
    speak.add_argument("--text", required=True)
    speak.add_argument("--language", help="same as --option language=…")
    speak.add_argument("--reference", type=Path, help="WAV file of the voice to clone")
    speak.add_argument("--reference-text", help="what is said in the reference")
    speak.add_argument("--seed", type=int, default=0)
    speak.add_argument("--option", action="append", default=[], metavar="NAME=JSON", help="an option of the engine")
    speak.add_argument("--device", help="torch device, as cpu or cuda:0")
    _add_settings(speak)
    speak.add_argument("--out", type=Path, required=True, help="the WAV file to write")
    speak.add_argument("--report", type=Path, help="the JSON file to write the output's meta to")
    speak.set_defaults(run=_speak)


def _add_engines(commands: argparse._SubParsersAction[Parser]) -> None:
    engines = commands.add_parser("engines", help="list the engines, their models and options")
    engines.add_argument("--json", action="store_true")
    _add_settings(engines)
    engines.set_defaults(run=_engines)


def _add_models(commands: argparse._SubParsersAction[Parser]) -> None:
    models = commands.add_parser("models", help="list or fetch model files")
    actions = models.add_subparsers(required=True, metavar="ACTION", parser_class=Parser)
    listing = actions.add_parser("list", help="models that are installed or can be fetched")
    listing.add_argument("engine", nargs="?", help=f"one of: {', '.join(ENGINES)}")
    _add_settings(listing)
    listing.set_defaults(run=_list_models)
    fetching = actions.add_parser("fetch", help="download a published model")
    fetching.add_argument("engine", help=f"one of: {', '.join(ENGINES)}")
    fetching.add_argument("model")
    _add_settings(fetching)
    fetching.set_defaults(run=_fetch_model)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(setting.name for setting in SETTINGS)
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help=f"one of: {names}")


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


def _speak(namespace: argparse.Namespace) -> int:
    from .audio.wav import read_wav, write_wav
    from .session import Session, SpeakRequest
    from .types import Audio

    settings = _pairs(namespace.setting, "--setting")
    if namespace.device is not None:
        settings["compute.device"] = namespace.device
    session = Session(resolve(settings))
    spec = engine_spec(namespace.engine)
    options = {name: _option(spec, name, text) for name, text in _pairs(namespace.option, "--option").items()}
    if namespace.language is not None:
        options["language"] = namespace.language
    inputs: dict[str, object] = {}
    if namespace.reference is not None:
        inputs["reference"] = Audio(*read_wav(namespace.reference))
    if namespace.reference_text is not None:
        inputs["reference_text"] = namespace.reference_text
    if namespace.out.suffix.lower() != ".wav":
        raise InputError(f"--out {namespace.out} must end in .wav")
    _check_folder("--out", namespace.out)
    if namespace.report is not None:
        _check_folder("--report", namespace.report)
    files = session.locate(spec.id, namespace.model)
    request = SpeakRequest(text=namespace.text, seed=namespace.seed, inputs=inputs, options=options)
    output = session.speak(files, request, _terminal_callbacks())
    write_wav(namespace.out, output.audio.samples, output.audio.rate_hz)
    if namespace.report is not None:
        text = json.dumps(output.meta, ensure_ascii=False, indent=2)
        namespace.report.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    return 0


def _check_folder(flag: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{flag} {path}: there is no folder {path.parent}; make it first")


def _terminal_callbacks() -> Callbacks:
    from .memory.phase import Callbacks

    return Callbacks(progress=_show_progress) if sys.stderr.isatty() else Callbacks()


def _show_progress(progress: Progress) -> None:
    end = "\n" if progress.done == progress.total else ""
    print(f"\r{progress.phase} {progress.done}/{progress.total}", end=end, file=sys.stderr, flush=True)


def _ignore_progress(progress: Progress) -> None:
    pass


def _engines(namespace: argparse.Namespace) -> int:
    from .describe import describe, table
    from .library import ModelLibrary, roots_from

    library = ModelLibrary(roots_from(resolve(_pairs(namespace.setting, "--setting"))))
    described = [describe(spec, library) for spec in all_engines()]
    print(json.dumps(described, ensure_ascii=False, indent=2) if namespace.json else table(described))
    return 0


def _list_models(namespace: argparse.Namespace) -> int:
    from .library import ModelLibrary, roots_from

    library = ModelLibrary(roots_from(resolve(_pairs(namespace.setting, "--setting"))))
    specs = all_engines() if namespace.engine is None else (engine_spec(namespace.engine),)
    for spec in specs:
        installed = library.installed(spec)
        for name in library.known(spec):
            state = "installed" if name in installed else "can be fetched"
            print(f"{spec.id}\t{name}\t{state}")
    return 0


def _fetch_model(namespace: argparse.Namespace) -> int:
    from .fetch import fetch
    from .library import ModelLibrary, roots_from

    library = ModelLibrary(roots_from(resolve(_pairs(namespace.setting, "--setting"))))
    show = _show_progress if sys.stderr.isatty() else _ignore_progress
    endpoint = os.environ.get("HF_ENDPOINT")
    path = fetch(engine_spec(namespace.engine), namespace.model, library, endpoint=endpoint, progress=show)
    print(path)
    return 0


def _options_help() -> str:
    lines = ["options of the engines:"]
    for spec in all_engines():
        for phase in spec.phases:
            for param in phase.params:
                lines.append(f"  {spec.id}: {param.name}={json.dumps(param.default)}  {param.tooltip}")
    return "\n".join(lines)
