"""What estimates of working memory are multiplied with, learnt from measurements and kept in a file (W3).

A factor rises at once to what was measured, times `MARGIN`, and falls slowly while measurements stay below. The file is
shared by processes: each adds what it learnt to what the file holds then, under a lock, and replaces it whole. A file
that can't be read counts as empty; where none can be written, factors live as long as the process.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

if TYPE_CHECKING:
    from torch import nn

VERSION = 2
MARGIN = 1.1
MAX_FACTOR = 16.0
DECAY = 0.95
"""Of what a factor is too large, so much is left after each measurement below it: half of it after 14."""
SETTLED = 0.01
NOTICEABLE = 1.05
MAX_PENDING = 64
MAX_KEYS = 2048
LOCK_SECONDS = 0.2
BACK_OFF_SECONDS = 10.0
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a measurement is of: everything that working memory depends on, so that it can't be taken for another's.

    engine, component, phase, step: the code that runs ("qwen3tts", "talker", "talk", "generate"); several components
    are joined with "+". model: its name. weights: `fingerprint` of its components. device: the device's model and
    the versions of what computes there. variant: options that change memory ("static", "compiled").
    """

    engine: str
    component: str
    phase: str
    step: str
    model: str
    weights: str
    device: str
    variant: str = ""

    def key(self, estimated_bytes: int) -> str:
        """The key for requests of this size: those whose estimates lie between the same powers of two share one."""
        parts = ":".join(quote(part, safe=" +", errors="surrogatepass") for part in astuple(self))
        return f"{parts}:2^{max(0, estimated_bytes).bit_length()}"


def fingerprint(*modules: nn.Module) -> str:
    """Tells apart models whose layers, shapes or dtypes differ; the numbers in the weights don't matter."""
    digest = hashlib.sha256()
    for module in modules:
        for name, part in module.named_modules():
            digest.update(f"{name}={type(part).__qualname__}({part.extra_repr()});".encode())
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            digest.update(f"{name}={tuple(tensor.shape)} {tensor.dtype};".encode())
    return digest.hexdigest()[:16]


class Calibration:
    """Factors by key. path: where they are kept, `<cache>/memory/calibration.json`; None: only in memory.

    Safe to use from several threads. `note` takes microseconds unless something changed noticeably.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._pending: deque[tuple[str, float]] = deque(maxlen=MAX_KEYS)
        self._not_before = 0.0
        self._factors = {} if path is None else _load(path)
        self._saved = dict(self._factors)

    def factor(self, key: str) -> float:
        """What to multiply an estimate with: from 1 to 16."""
        return self._factors.get(key, 1.0)

    def note(self, key: str, estimated_bytes: int, measured_bytes: int) -> None:
        """Learn that a phase whose uncalibrated estimate was `estimated_bytes` took `measured_bytes`."""
        if estimated_bytes <= 0:
            return
        measured = measured_bytes / estimated_bytes
        target = min(MARGIN * measured, MAX_FACTOR) if measured > 1 else 1.0
        with self._lock:
            if target == 1.0 and key not in self._factors:
                return
            _step(self._factors, key, target)
            if self._path is None:
                return
            self._pending.append((key, target))
            rose = self.factor(key) > NOTICEABLE * self._saved.get(key, 1.0)
            if (rose or len(self._pending) >= MAX_PENDING) and time.monotonic() >= self._not_before:
                self._save(self._path)

    def save(self) -> bool:
        """Write what isn't written yet; False if another process kept the file locked, then it is tried again later."""
        with self._lock:
            if self._path is not None and self._pending:
                self._save(self._path)
            return not self._pending

    def _save(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path) as mine:
                if not mine:
                    self._not_before = time.monotonic() + BACK_OFF_SECONDS
                    return
                factors = _read(path)
                for key, target in self._pending:
                    _step(factors, key, target)
                _replace(path, {"version": VERSION, "factors": factors})
        except OSError as error:
            LOG.warning("what is learnt of working memory is forgotten when this process ends: %s", error)
            self._path = None
            self._pending.clear()
            return
        self._pending.clear()
        self._factors, self._saved = factors, dict(factors)


def _step(factors: dict[str, float], key: str, target: float) -> None:
    """Move one factor up to `target`, or down towards it. Of too many the smallest are dropped."""
    above = DECAY * (factors.get(key, 1.0) - target)
    after = target + above if above > SETTLED else target
    if after > 1.0:
        factors[key] = after
    else:
        factors.pop(key, None)
    while len(factors) > MAX_KEYS:
        del factors[min(factors, key=factors.__getitem__)]


def _load(path: Path) -> dict[str, float]:
    """As `_read`, when no other process is replacing the file, which Windows would refuse to it meanwhile."""
    with suppress(OSError):
        if path.exists():
            with _locked(path):
                return _read(path)
    return _read(path)


def _read(path: Path) -> dict[str, float]:
    """The factors in a file, of too many the largest; whatever is damaged or of another version is left out."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or content.get("version") != VERSION:
        return {}
    factors = content.get("factors")
    if not isinstance(factors, dict):
        return {}
    sound = [(key, float(value)) for key, value in factors.items() if _is_factor(value)]
    return dict(sorted(sound, key=lambda item: -item[1])[:MAX_KEYS])


def _is_factor(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 1.0 < value <= MAX_FACTOR


def _replace(path: Path, content: Mapping[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether this process is the only one between here and the block's end; the system unlocks if it dies.

    OSError if the lock's file can't be made. Where a file system knows no locks, writers may undo each other's notes.
    """
    with path.with_name(f"{path.name}.lock").open("a+b") as file:
        mine = _acquire(file.fileno())
        try:
            yield mine
        finally:
            if mine:
                with suppress(OSError):
                    _release(file.fileno())


def _acquire(descriptor: int) -> bool:
    deadline = time.monotonic() + LOCK_SECONDS
    while not _try_lock(descriptor):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _release(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
