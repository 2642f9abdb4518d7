"""`speak`: a text into a WAV file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..engines.registry import engine_spec
from ..errors import InputError
from .arguments import add_request, choose_allocator, options_help, request_of, settings_of, terminal_callbacks

if TYPE_CHECKING:
    from .arguments import Commands


def add_to(commands: Commands) -> None:
    speak = commands.add_parser(
        "speak",
        help="speak a text into a WAV file",
        description="Speak a text into a 32-bit float WAV file at the voice's own sample rate.",
        epilog=options_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_request(speak)
    speak.add_argument("--out", type=Path, required=True, help="the WAV file to write")
    speak.add_argument("--report", type=Path, help="the JSON file to write the output's meta to")
    speak.set_defaults(run=_run)


def _run(namespace: argparse.Namespace) -> int:
    settings = settings_of(namespace)
    choose_allocator(settings)
    from ..audio.wav import write_wav
    from ..session import Session

    session = Session(settings)
    spec = engine_spec(namespace.engine)
    request = request_of(namespace, spec)
    if namespace.out.suffix.lower() != ".wav":
        raise InputError(f"--out {namespace.out} must end in .wav")
    _check_folder("--out", namespace.out)
    if namespace.report is not None:
        _check_folder("--report", namespace.report)
    files = session.locate(spec.id, namespace.model)
    output = session.speak(files, request, terminal_callbacks())
    write_wav(namespace.out, output.audio.samples, output.audio.rate_hz)
    if namespace.report is not None:
        text = json.dumps(output.meta, ensure_ascii=False, indent=2)
        namespace.report.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    return 0


def _check_folder(flag: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{flag} {path}: there is no folder {path.parent}; make it first")
