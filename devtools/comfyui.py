"""Starts and stops a ComfyUI server on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from .errors import DevError, file_tail
from .paths import ROOT
from .process import output_of, stop
from .tree import Tree

HOST = "127.0.0.1"
PACK = "mizuoto"
START_TIMEOUT_S = 240.0
STOP_GRACE_S = 10.0
KEPT_LOGS = 10
_COPY_MARK = ".copied-by-dev"
_NOT_COPIED = (".*", "__pycache__", "*.flac")


class ServerFailed(DevError):
    """The server did not start, or ended by itself. The message holds the end of its log and the log's path."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def port_is_free(port: int) -> bool:
    with socket.socket() as listener:
        if os.name != "nt":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def _copy_pack(link: Path, pack_root: Path) -> None:
    shutil.copytree(pack_root, link, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    (link / _COPY_MARK).touch()


def _link_pack(link: Path, pack_root: Path) -> None:
    try:
        link.symlink_to(pack_root, target_is_directory=True)
    except OSError:  # Windows without the right to make links: a junction needs none
        if os.name != "nt" or output_of(["cmd", "/c", "mklink", "/J", link, pack_root]) is None:
            _copy_pack(link, pack_root)


def prepare_base(base: Path, pack_root: Path = ROOT) -> Path:
    """Make a ComfyUI base directory whose custom_nodes/mizuoto leads to the pack; returns `base`, absolute."""
    base = base.absolute()
    for name in ("custom_nodes", "models", "input", "output", "user", "logs"):
        (base / name).mkdir(parents=True, exist_ok=True)
    link = base / "custom_nodes" / PACK
    if (link / _COPY_MARK).exists() and not (pack_root / _COPY_MARK).exists():
        shutil.rmtree(link)
    elif link.is_symlink() and link.resolve() != pack_root.resolve():
        link.unlink()
    if not link.exists():
        _link_pack(link, pack_root)
    if not (link / _COPY_MARK).exists() and link.resolve() != pack_root.resolve():
        raise DevError(f"{link} is not the pack in {pack_root}. Move it away and run this again")
    return base


class ComfyServer:
    """A ComfyUI server process for the length of a `with` block.

    `base` is ComfyUI's base directory (see `prepare_base`, which is called here). `pack=None` starts without any custom
    node. `extra_args` are appended to ComfyUI's command line and `env` is laid over this process's environment. The
    database and temporary files are the run's own, so several servers may share a base directory. `certificate` is the
    folder of a cert.pem and its key.pem, for https.

    Entering raises `ServerFailed` if the server ends or does not answer within `start_timeout_s`.
    """

    def __init__(
        self,
        tree: Tree,
        base: Path,
        *,
        extra_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        pack: str | None = PACK,
        cpu: bool = True,
        certificate: Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.tree = tree
        self.base = base.absolute()
        self.port = port or free_port()
        self.url = f"{'http' if certificate is None else 'https'}://{HOST}:{self.port}"
        self.log_path = self.base / "logs" / f"server-{self.port}.log"
        self._extra_args = list(extra_args)
        self._env = dict(env or {})
        self._pack = pack
        self._cpu = cpu
        self._certificate = certificate
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Everything that the server has printed so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def _command(self, scratch: Path) -> list[str]:
        command = [sys.executable, str(self.tree.root / "main.py"), "--listen", HOST, "--port", str(self.port)]
        command += ["--base-directory", str(self.base), "--temp-directory", str(scratch)]
        command += ["--database-url", f"sqlite:///{(scratch / 'comfyui.db').as_posix()}"]
        command += ["--disable-api-nodes", "--disable-auto-launch", "--disable-all-custom-nodes"]
        if self._pack is not None:
            command += ["--whitelist-custom-nodes", self._pack]
        if self._certificate is not None:
            command += ["--tls-keyfile", str(self._certificate / "key.pem")]
            command += ["--tls-certfile", str(self._certificate / "cert.pem")]
        return command + (["--cpu"] if self._cpu else []) + self._extra_args

    def _environment(self) -> dict[str, str]:
        python_path = filter(None, (str(self.tree.packages), os.environ.get("PYTHONPATH")))
        fixed = {"PYTHONPATH": os.pathsep.join(python_path), "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
        return {**os.environ, **fixed, **self._env}

    def __enter__(self) -> ComfyServer:
        prepare_base(self.base)
        self._drop_old_logs()
        scratch = self._scratch = Path(tempfile.mkdtemp(dir=self.base / "logs", prefix=f"run-{self.port}-"))
        try:
            with self.log_path.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command(scratch),
                    cwd=self.tree.root,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches only us; we stop the server
                )
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _drop_old_logs(self) -> None:
        logs = sorted(self.log_path.parent.glob("server-*.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[:-KEPT_LOGS]:
            path.unlink(missing_ok=True)

    def failure(self, what: str) -> ServerFailed:
        """An error that shows the end of the server's log and where all of it lies."""
        return ServerFailed(f"{what}. The end of its log:\n{file_tail(self.log_path)}\nfull log: {self.log_path}")

    def check(self) -> None:
        """Raise `ServerFailed` if the server has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            code = self._process.returncode
            raise self.failure(f"ComfyUI {self.tree.version} ended by itself (exit code {code})")

    def _answers(self) -> bool:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._certificate is not None:
            trusted = ssl.create_default_context(cafile=str(self._certificate / "cert.pem"))
            handlers.append(urllib.request.HTTPSHandler(context=trusted))
        try:
            with urllib.request.build_opener(*handlers).open(f"{self.url}/system_stats", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + self._start_timeout_s
        while not self._answers():
            self.check()
            if time.monotonic() > deadline_s:
                raise self.failure(f"ComfyUI {self.tree.version} did not answer in {self._start_timeout_s:.0f} s")
            time.sleep(0.1)

    def wait(self) -> None:
        """Block until the server ends; Ctrl-C interrupts the wait."""
        while self.running:
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the server and remove its temporary files. May be called again."""
        if self._process is not None:
            stop(self._process, STOP_GRACE_S)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
