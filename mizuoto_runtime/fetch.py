"""Downloading of published models. Runs only when a user asks for it by name, never on its own.

A file is received as `<name>.part`, from which a later call goes on; it gets its name once its size and digest are
right. What makes a model visible to the library comes last, so that half a model is never listed.
"""

from __future__ import annotations

import hashlib
import http
import http.client
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from .addresses import HUGGING_FACE, check_file_address, checked_endpoint
from .engines.spec import EngineSpec, Layout, ModelFile, Variant
from .errors import InputError, MizuotoError, UnknownName
from .library import ModelLibrary
from .settings import Settings, setting
from .types import Progress

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 4
BLOCK_BYTES = 1 << 20

_UNFIT_IN_NAMES = frozenset('\\:*?"<>|\0')


class FetchFailed(MizuotoError):
    """A model couldn't be downloaded; the message says why, and what to do."""


class LicenceNotAccepted(MizuotoError):
    """A model whose licence forbids some uses, and nobody has said yes to it."""


class _Interrupted(Exception):
    """The connection broke; what came so far is kept."""


def fetch(
    spec: EngineSpec,
    variant_id: str,
    library: ModelLibrary,
    *,
    accepts_licence: bool = False,
    endpoint: str | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Download a published model into the library unless it is there already; returns its path.

    accepts_licence: the user has accepted the licence; LicenceNotAccepted where that is needed and wasn't given.
    endpoint: the address of a mirror that takes the place of HUGGING_FACE. progress: told the bytes of all files.
    check: called for every block; it raises to cancel. UnknownName lists the published models; FetchFailed for a wrong
    answer, a wrong digest, a full disk or a broken connection; the next call goes on where this one stopped.
    """
    variant = fetchable(spec, variant_id, accepts_licence=accepts_licence)
    folder = _folder(spec, variant, library)
    receiver = _Receiver(variant, progress, check)
    entries: list[tuple[Path, Path]] = []
    for file in sorted(variant.files, key=lambda file: _is_entry(file, spec.layout)):
        target = folder / _checked_path(file.path)
        url = file_url(file, endpoint)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            received = receiver.obtain(file, url, target)
            if _is_entry(file, spec.layout):
                entries.append((received, target))
            else:
                received.replace(target)
        except OSError as error:
            raise FetchFailed(f"{target} can't be written: {error.strerror or error}") from error
    _unveil(entries)
    return folder if spec.layout.kind == "folder" else folder / f"{variant.id}{spec.layout.suffix}"


def endpoint_of(settings: Settings) -> str:
    """Where the settings say that models are fetched from; InputError names the source of what is no address."""
    source = settings.sources["fetch.endpoint"]
    return str(setting("fetch.endpoint").check(settings.text("fetch.endpoint"), source))


def fetchable(spec: EngineSpec, variant_id: str, *, accepts_licence: bool) -> Variant:
    """The published model, if it may be downloaded; errors as in `fetch`."""
    variant = _published(spec, variant_id)
    if variant.restricts and not accepts_licence:
        raise LicenceNotAccepted(
            f"{variant.id} has a licence that forbids some uses: {variant.licence}. Read it where the model is "
            "published; if your use is allowed, accept it (--accept-licence) and fetch again"
        )
    return variant


def file_url(file: ModelFile, endpoint: str | None = None) -> str:
    """Where to download `file`: its own address, or its path on `endpoint` (HUGGING_FACE if None or empty).

    InputError if that isn't https. Plain http is only for this machine, and for an endpoint that asks for it.
    """
    if "://" in file.url:
        check_file_address(file.url)
        return file.url
    base = checked_endpoint(endpoint or HUGGING_FACE, "the address to download from")
    return f"{base}/{urllib.parse.quote(file.url)}"


def _published(spec: EngineSpec, variant_id: str) -> Variant:
    published = {variant.id: variant for variant in spec.variants if variant.files}
    if not published:
        raise InputError(f"engine {spec.id!r} has no models to download")
    if variant_id not in published:
        raise UnknownName(f"published {spec.label} model", variant_id, published)
    return published[variant_id]


def _folder(spec: EngineSpec, variant: Variant, library: ModelLibrary) -> Path:
    """Where the variant's files belong: where it is installed, else in the library's first root."""
    if spec.layout.kind == "folder":
        return library.installed(spec).get(variant.id) or library.folder(spec) / variant.id
    installed = library.installed(spec).get(variant.id)
    return installed.parent if installed else library.folder(spec)


def _unveil(entries: list[tuple[Path, Path]]) -> None:
    """Give the received files their names, the outermost first: what lies below a model's folder is no model."""
    for received, target in sorted(entries, key=lambda entry: len(entry[1].parts)):
        try:
            received.replace(target)
        except OSError as error:
            raise FetchFailed(f"{target} can't be written: {error.strerror or error}") from error


def _is_entry(file: ModelFile, layout: Layout) -> bool:
    """Whether the library takes a file of that name as the sign that a model is there."""
    if layout.kind == "folder":
        return PurePosixPath(file.path).name == layout.marker
    return file.path.endswith(layout.suffix)


def _checked_path(path: str) -> PurePosixPath:
    """`path` if it stays inside the folder that it is joined to, on every system."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or _UNFIT_IN_NAMES & set(part) for part in parts):
        raise InputError(f"the model names a file {path!r}, which would lie outside its folder")
    return PurePosixPath(path)


class _Receiver:
    """Receives the files of one variant, one after another."""

    def __init__(self, variant: Variant, progress: Callable[[Progress], None], check: Callable[[], None]) -> None:
        self._name = variant.id
        self._progress = progress
        self._check = check
        self._total_bytes = sum(file.size_bytes for file in variant.files)
        self._finished_bytes = 0

    def obtain(self, file: ModelFile, url: str, target: Path) -> Path:
        """`file`, whole and right: `target` if it is there, else what is to become `target`."""
        received = target
        if target.exists():
            _check_existing(file, target)
        else:
            received = target.with_name(target.name + ".part")
            self._receive(file, url, received)
        self._finished_bytes += file.size_bytes
        self._tell(0)
        return received

    def _receive(self, file: ModelFile, url: str, part: Path) -> None:
        problem = ""
        for _ in range(ATTEMPTS):
            self._check()
            have = _size(part)
            try:
                if have < file.size_bytes:
                    have = self._go_on(file, url, part, have)
            except _Interrupted as interruption:
                problem = str(interruption)
                continue
            if digest_is_right(file, part):
                return
            part.unlink()
            problem = f"its {_digest_name(file)} digest differs from the published one"
            if not have:
                break
        left = f"; {_size(part):,} of {file.size_bytes:,} bytes are kept, fetch again to go on" if _size(part) else ""
        by_hand = f"or put the file into {part.parent} by hand"
        raise FetchFailed(f"{url} couldn't be downloaded: {problem}{left}; try again later, {by_hand}")

    def _go_on(self, file: ModelFile, url: str, part: Path, have: int) -> int:
        """Receive what `part` lacks; returns how many earlier bytes were built upon."""
        _check_room(part.parent, file.size_bytes - have)
        with _open(url, have) as answer:
            have = _accepted_start(answer, file, url, have)
            with part.open("r+b" if have else "wb") as out:
                out.truncate(have)
                out.seek(have)
                self._copy(answer, out, file, url)
        return have

    def _copy(self, answer: http.client.HTTPResponse, out: IO[bytes], file: ModelFile, url: str) -> None:
        while True:
            self._check()
            block = _read(answer)
            if out.tell() + len(block) > file.size_bytes:
                raise FetchFailed(f"{url} sends more than the {file.size_bytes:,} bytes that were published")
            out.write(block)
            self._tell(out.tell())
            if out.tell() == file.size_bytes:
                return
            if not block:
                raise _Interrupted(f"the connection ended after {out.tell():,} of {file.size_bytes:,} bytes")

    def _tell(self, received_bytes: int) -> None:
        self._progress(Progress(self._name, self._finished_bytes + received_bytes, self._total_bytes))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_existing(file: ModelFile, target: Path) -> None:
    if not digest_is_right(file, target):
        raise FetchFailed(
            f"{target} exists, but isn't the published file ({_size(target):,} bytes; published are "
            f"{file.size_bytes:,}). Rename it to keep it, or remove it, then fetch again"
        )


def _check_room(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise FetchFailed(f"{needed_bytes:,} bytes are needed in {folder}, {free_bytes:,} are free; make room")


def _digest_name(file: ModelFile) -> str:
    if not (file.sha256 or file.md5):
        raise ValueError(f"{file.path} is published without a digest")
    return "sha256" if file.sha256 else "md5"


def digest_is_right(file: ModelFile, path: Path) -> bool:
    """Whether the file at `path` has the published size and content."""
    if _size(path) != file.size_bytes:
        return False
    digest = hashlib.new(_digest_name(file), usedforsecurity=False)
    with path.open("rb") as content:
        while block := content.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == (file.sha256 or file.md5)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https, and to the same host by the same scheme."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme != "https" and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise FetchFailed(f"{req.full_url} redirects to {newurl}, which isn't https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str, start: int) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "mizuoto", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    opener = urllib.request.build_opener(_Redirects)
    try:
        answer: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0)
        advice = "try again later, or let the setting fetch.endpoint name another hub"
        raise FetchFailed(f"{url} can't be had: the server answers {error.code} {error.reason}; {advice}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(f"no connection ({error})") from error
    return answer


def _accepted_start(answer: http.client.HTTPResponse, file: ModelFile, url: str, start: int) -> int:
    """Where what the server sends begins; FetchFailed if it isn't of the published size."""
    if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
        start = 0
    elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise FetchFailed(f"{url} sends another part than the one asked for, from byte {start:,} on")
    length = answer.headers.get("Content-Length")
    if length is not None and length.isdigit() and int(length) != file.size_bytes - start:
        offered = start + int(length)
        raise FetchFailed(f"{url} has {offered:,} bytes; {file.size_bytes:,} were published, so it is another file")
    return start


def _read(answer: http.client.HTTPResponse) -> bytes:
    """What has come, at most a block; a slow connection's bytes aren't waited for until they fill one."""
    try:
        return answer.read1(BLOCK_BYTES)
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(f"the connection broke ({error})") from error
