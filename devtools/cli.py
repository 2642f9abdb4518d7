"""Command line of dev.py: parses, goes into `.venv`, and turns every expected failure into one message."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from .errors import DevError
from .venv import continue_inside, create_venv, inside_venv


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev.py", description="Try, test and develop the pack in its own .venv.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="demo|test|comfyui")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--comfyui", type=Path, metavar="DIR", help="ComfyUI checkout (default: $COMFYUI_PATH, else the pinned release)"
    )
    demo = commands.add_parser("demo", parents=[common], help="make a real ComfyUI server speak and save the audio")
    demo.add_argument("--text", help="what to say (default: the workflow's own text)")
    demo.add_argument("--out", type=Path, default=Path("demo.flac"), help="audio file to write (default: demo.flac)")
    demo.add_argument("--workflow", type=Path, help="workflow in API format (default: workflows/api/piper_speak.json)")
    test = commands.add_parser(
        "test",
        parents=[common],
        help="lint, types and the whole test suite",
        epilog="Arguments after -- go to pytest: dev.py test -- tests/devtools -k zip",
    )
    test.set_defaults(pytest_arguments=[])
    comfyui = commands.add_parser("comfyui", parents=[common], help="run ComfyUI with the pack until Ctrl-C")
    comfyui.add_argument("--port", type=int, help="port on 127.0.0.1 (default: 8188 if it is free, else any)")
    return parser


def _parse(arguments: list[str]) -> argparse.Namespace:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = _parser().parse_args(arguments[:split])
    rest = arguments[split + 1 :]
    if rest and options.command != "test":
        _parser().error(f"only 'test' takes arguments after --, not {options.command!r}")
    options.pytest_arguments = rest
    return options


def _run(options: argparse.Namespace) -> int:
    if options.command == "demo":
        from .demo import demo

        return demo(options.workflow, text=options.text, out=options.out, comfyui=options.comfyui)
    if options.command == "test":
        from .suite import run_suite

        return run_suite(options.pytest_arguments, comfyui=options.comfyui)
    from .serve import serve

    return serve(comfyui=options.comfyui, port=options.port)


def _on_terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(143)


def main(arguments: list[str]) -> int:
    """Run one command and return the exit code: 0 success, 1 failure, 2 bad usage, 130 Ctrl-C."""
    options = _parse(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        if not inside_venv():
            create_venv()
            return continue_inside(arguments)
        signal.signal(signal.SIGTERM, _on_terminate)
        return _run(options)
    except DevError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
