"""Child processes that never outlive the command that started them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from .errors import DevError, file_tail

GRACE_S = 30.0


def stop(process: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """End a process that we started: ask, wait for `grace_s` seconds, then kill."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stop_interrupted(process: subprocess.Popen[bytes], *, was_told: bool) -> None:
    """Let an interrupted child clean up: Ctrl-C in a terminal has told it already, a SIGTERM to us has not."""
    if not was_told and os.name != "nt":
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        stop(process, 5.0)


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    output: IO[bytes] | None = None,
) -> int:
    """Run a command to its end and return its exit code; `output` receives stdout and stderr together.

    Raises `subprocess.TimeoutExpired` after `timeout_s` seconds; the child is gone by then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=None if env is None else {**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        stop(process, 5.0)
        raise
    except BaseException as stopped:
        _stop_interrupted(process, was_told=isinstance(stopped, KeyboardInterrupt))
        raise


def run_logged(
    command: Sequence[str | Path],
    log_path: Path,
    *,
    what: str,
    advice: str,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> None:
    """Run a command with its output in `log_path`; a failure is a `DevError` with the end of that log."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        try:
            code = run(command, env=env, timeout_s=timeout_s, output=log)
        except subprocess.TimeoutExpired:
            raise DevError(f"{what} did not finish in {timeout_s:.0f} s. {advice}\n{file_tail(log_path)}") from None
        except OSError as error:
            raise DevError(f"{what} could not be started: {error}. {advice}") from error
    if code != 0:
        raise DevError(f"{what} failed (exit code {code}). {advice}\n{file_tail(log_path)}\nfull log: {log_path}")


def output_of(command: Sequence[str | Path], timeout_s: float = 120.0) -> str | None:
    """The standard output of a short command, or None if it fails, is missing or takes too long."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def can_use_apt() -> bool:
    """Whether Debian packages can be installed by this process without asking anyone."""
    return os.name == "posix" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: Sequence[str], log_path: Path) -> None:
    """Install Debian packages; raises `DevError` with the end of apt's output."""
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    advice = f"Run by hand: apt-get update && apt-get install {' '.join(packages)}"
    run_logged(
        ["apt-get", "-q", "update"], log_path, what="apt-get update", advice=advice, env=env, timeout_s=600
    )
    run_logged(
        ["apt-get", "-q", "install", "-y", "--no-install-recommends", *packages],
        log_path,
        what=f"apt-get install {' '.join(packages)}",
        advice=advice,
        env=env,
        timeout_s=1200,
    )
