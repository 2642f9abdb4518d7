"""The command line. Exit code 2 for bad use, 1 for a failure, each with one line on the standard error stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ..errors import Cancelled, InputError, MizuotoError
from . import conformance, doctor, models, runtime, speak
from .arguments import Parser

BAD_USE = 2
FAILURE = 1
INTERRUPTED = 130


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
    for command in (speak, models, runtime, doctor, conformance):
        command.add_to(commands)
    return parser
