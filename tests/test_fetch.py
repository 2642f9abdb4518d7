"""Downloads, from a server on this machine that can misbehave."""

import hashlib
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from mizuoto_runtime import fetch as fetching
from mizuoto_runtime.engines.piper.spec import SPEC as PIPER
from mizuoto_runtime.engines.registry import engine_spec
from mizuoto_runtime.engines.spec import EngineSpec, Layout, ModelFile, Variant
from mizuoto_runtime.errors import Cancelled, InputError, UnknownName
from mizuoto_runtime.fetch import FetchFailed, fetch, file_url
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.types import Progress

MODEL = bytes(range(256)) * 1_200
CONFIG = b'{"a": 1}'
NAME = "xx_XX-tugão-low"


@dataclass
class Server:
    """What the server holds, how it misbehaves, and what it was asked for."""

    endpoint: str
    files: dict[str, bytes]
    cut_after: dict[str, list[int]] = field(default_factory=dict)
    ranges: bool = True
    redirect_to: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    hold_after: dict[str, int] = field(default_factory=dict)
    go_on: threading.Event = field(default_factory=threading.Event)


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            span = self.headers["Range"]
            server.asked.append((self.path, span))
            if server.redirect_to and not self.path.startswith("/moved"):
                self.send_response(302)
                self.send_header("Location", server.redirect_to + self.path)
                self.end_headers()
                return
            path = self.path.removeprefix("/moved")
            if path not in server.files:
                self.send_error(404)
                return
            self._send(path, server.files[path], int(span[6:-1]) if span and server.ranges else 0)

        def _send(self, path: str, content: bytes, start: int) -> None:
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if path in server.hold_after:
                end = start + server.hold_after.pop(path)
                self.wfile.write(content[start:end])
                server.go_on.wait(60)
                start = end
            cuts = server.cut_after.get(path)
            with suppress(ConnectionError):  # the client has heard enough
                self.wfile.write(content[start : start + cuts.pop(0)] if cuts else content[start:])

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    held = Server("", {"/r/x.onnx": MODEL, "/r/t%C3%BC.json": CONFIG})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler(held))
    held.endpoint = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield held
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def library(tmp_path: Path) -> ModelLibrary:
    return ModelLibrary([tmp_path / "models", tmp_path / "more"])


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def published(*files: ModelFile, layout: Layout = PIPER.layout) -> EngineSpec:
    model = ModelFile(path=f"{NAME}.onnx", url="r/x.onnx", size_bytes=len(MODEL), md5=md5(MODEL))
    config = ModelFile(path=f"{NAME}.onnx.json", url="r/tü.json", size_bytes=len(CONFIG), md5=md5(CONFIG))
    variant = Variant(id=NAME, label="", licence="", files=files or (model, config))
    return EngineSpec(
        id="piper",
        label="Piper",
        description="",
        licence="",
        layout=layout,
        components=(),
        phases=(),
        phased=True,
        variants=(variant,),
    )


def one_file(**changes: object) -> EngineSpec:
    values = {"path": f"{NAME}.onnx", "url": "r/x.onnx", "size_bytes": len(MODEL), "md5": md5(MODEL), **changes}
    return published(ModelFile(**values))  # type: ignore[arg-type]


def names(library: ModelLibrary) -> list[str]:
    return sorted(path.name for path in library.folder(PIPER).rglob("*")) if library.folder(PIPER).exists() else []


def test_a_model_is_downloaded_flat_and_then_installed(server: Server, library: ModelLibrary) -> None:
    spec = published()
    path = fetch(spec, NAME, library, endpoint=server.endpoint)
    assert path == library.roots[0] / "piper" / f"{NAME}.onnx"
    assert path.read_bytes() == MODEL
    assert path.with_name(f"{NAME}.onnx.json").read_bytes() == CONFIG
    assert names(library) == [f"{NAME}.onnx", f"{NAME}.onnx.json"]
    assert library.installed(spec) == {NAME: path}


def test_what_makes_the_model_visible_comes_last(server: Server, library: ModelLibrary) -> None:
    del server.files["/r/t%C3%BC.json"]
    with pytest.raises(FetchFailed, match="404"):
        fetch(published(), NAME, library, endpoint=server.endpoint)
    assert names(library) == []
    assert [path for path, _ in server.asked] == ["/r/t%C3%BC.json"]


def test_a_whole_model_is_not_asked_for_again(server: Server, library: ModelLibrary) -> None:
    fetch(published(), NAME, library, endpoint=server.endpoint)
    server.asked.clear()
    fetch(published(), NAME, library, endpoint=server.endpoint)
    assert server.asked == []


def test_a_model_in_another_root_is_completed_there(server: Server, library: ModelLibrary) -> None:
    folder = library.roots[1] / "piper"
    folder.mkdir(parents=True)
    (folder / f"{NAME}.onnx").write_bytes(MODEL)
    assert fetch(published(), NAME, library, endpoint=server.endpoint) == folder / f"{NAME}.onnx"
    assert (folder / f"{NAME}.onnx.json").read_bytes() == CONFIG
    assert names(library) == []


def test_a_file_of_the_user_is_not_replaced(server: Server, library: ModelLibrary) -> None:
    mine = library.folder(PIPER) / f"{NAME}.onnx.json"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    with pytest.raises(FetchFailed, match=r"isn't the published file \(4 bytes; published are 8\)"):
        fetch(published(), NAME, library, endpoint=server.endpoint)
    assert mine.read_bytes() == b"mine"
    assert server.asked == []


def test_a_cut_connection_is_taken_up_again(server: Server, library: ModelLibrary) -> None:
    server.cut_after["/r/x.onnx"] = [1_000, 2_000]
    fetch(one_file(), NAME, library, endpoint=server.endpoint)
    assert [span for _, span in server.asked] == [None, "bytes=1000-", "bytes=3000-"]
    assert (library.folder(PIPER) / f"{NAME}.onnx").read_bytes() == MODEL


def test_a_connection_that_keeps_breaking_leaves_a_part_that_is_not_listed(
    server: Server, library: ModelLibrary
) -> None:
    server.cut_after["/r/x.onnx"] = [1_000] * fetching.ATTEMPTS
    with pytest.raises(FetchFailed, match=r"4,000 of 307,200 bytes are kept, fetch again to go on"):
        fetch(one_file(), NAME, library, endpoint=server.endpoint)
    assert names(library) == [f"{NAME}.onnx.part"]
    assert library.installed(PIPER) == {}
    server.asked.clear()
    fetch(one_file(), NAME, library, endpoint=server.endpoint)
    assert server.asked == [("/r/x.onnx", "bytes=4000-")]
    assert names(library) == [f"{NAME}.onnx"]


def test_a_server_without_ranges_is_read_from_the_start(server: Server, library: ModelLibrary) -> None:
    server.ranges = False
    server.cut_after["/r/x.onnx"] = [1_000]
    assert fetch(one_file(), NAME, library, endpoint=server.endpoint).read_bytes() == MODEL


@pytest.mark.parametrize("kept", [b"other content", b"x" * len(MODEL), b"x" * (len(MODEL) + 9)])
def test_a_part_of_something_else_is_dropped(server: Server, library: ModelLibrary, kept: bytes) -> None:
    part = library.folder(PIPER) / f"{NAME}.onnx.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(kept)
    assert fetch(one_file(), NAME, library, endpoint=server.endpoint).read_bytes() == MODEL
    assert names(library) == [f"{NAME}.onnx"]


@pytest.mark.parametrize("size_bytes", [len(MODEL) - 1, len(MODEL) + 1])
def test_a_file_of_another_size_is_refused_before_it_is_read(
    server: Server, library: ModelLibrary, size_bytes: int
) -> None:
    with pytest.raises(FetchFailed, match=f"has 307,200 bytes; {size_bytes:,} were published"):
        fetch(one_file(size_bytes=size_bytes), NAME, library, endpoint=server.endpoint)
    assert names(library) == []


def test_a_part_larger_than_what_is_there_now_is_refused(server: Server, library: ModelLibrary) -> None:
    part = library.folder(PIPER) / f"{NAME}.onnx.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(MODEL)
    with pytest.raises(FetchFailed, match="has 307,200 bytes; 400,000 were published"):
        fetch(one_file(size_bytes=400_000), NAME, library, endpoint=server.endpoint)


@pytest.mark.parametrize("digest", [{"md5": md5(CONFIG)}, {"sha256": hashlib.sha256(CONFIG).hexdigest()}])
def test_a_wrong_digest_is_refused_and_leaves_nothing(
    server: Server, library: ModelLibrary, digest: dict[str, str]
) -> None:
    with pytest.raises(FetchFailed, match=f"{next(iter(digest))} digest differs"):
        fetch(one_file(**digest), NAME, library, endpoint=server.endpoint)
    assert names(library) == []
    assert len(server.asked) == 1


def test_sha256_is_checked_when_it_is_published(server: Server, library: ModelLibrary) -> None:
    fetch(one_file(sha256=hashlib.sha256(MODEL).hexdigest()), NAME, library, endpoint=server.endpoint)
    assert names(library) == [f"{NAME}.onnx"]


def test_progress_counts_the_bytes_of_all_files(
    server: Server, library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "BLOCK_BYTES", 100_000)
    told: list[Progress] = []
    fetch(published(), NAME, library, endpoint=server.endpoint, progress=told.append)
    total = len(MODEL) + len(CONFIG)
    assert {(step.phase, step.total) for step in told} == {(NAME, total)}
    assert [step.done for step in told] == sorted(step.done for step in told)
    assert told[-1].done == total
    assert len({step.done for step in told}) >= 4


def test_a_cancelled_download_goes_on_later(
    server: Server, library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "BLOCK_BYTES", 100_000)
    calls = iter(range(100))

    def check() -> None:
        if next(calls) == 3:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        fetch(one_file(), NAME, library, endpoint=server.endpoint, check=check)
    assert names(library) == [f"{NAME}.onnx.part"]
    (part,) = library.folder(PIPER).iterdir()
    kept_bytes = part.stat().st_size
    assert 0 < kept_bytes <= 200_000
    assert fetch(one_file(), NAME, library, endpoint=server.endpoint).read_bytes() == MODEL
    assert server.asked[-1][1] == f"bytes={kept_bytes}-"


def test_what_comes_slowly_is_told_before_it_fills_a_block(server: Server, library: ModelLibrary) -> None:
    server.hold_after["/r/x.onnx"] = 5_000
    told: list[int] = []

    def tell(progress: Progress) -> None:
        told.append(progress.done)
        if progress.done >= 5_000:
            server.go_on.set()

    fetch(one_file(), NAME, library, endpoint=server.endpoint, progress=tell)
    assert 0 < told[0] <= 5_000


def test_a_full_disk_is_noticed_before(server: Server, library: ModelLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000))
    with pytest.raises(FetchFailed, match=r"307,200 bytes are needed .* 1,000 are free"):
        fetch(one_file(), NAME, library, endpoint=server.endpoint)
    assert server.asked == []


def test_a_disk_that_fills_up_leaves_no_model(
    server: Server, library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FetchFailed, match="can't be written: No space left on device"):
        fetch(one_file(), NAME, library, endpoint=server.endpoint)
    assert library.installed(PIPER) == {}


def test_a_server_that_is_not_there_is_named(library: ModelLibrary) -> None:
    with pytest.raises(FetchFailed, match=r"http://127\.0\.0\.1:9/r/x\.onnx couldn't be downloaded: no connection"):
        fetch(one_file(), NAME, library, endpoint="http://127.0.0.1:9")


def test_a_redirection_on_the_same_server_is_followed(server: Server, library: ModelLibrary) -> None:
    server.redirect_to = server.endpoint + "/moved"
    assert fetch(one_file(), NAME, library, endpoint=server.endpoint).read_bytes() == MODEL


@pytest.mark.parametrize("target", ["http://example.invalid", "http://localhost:1", "ftp://example.invalid"])
def test_a_redirection_away_from_https_is_refused(server: Server, library: ModelLibrary, target: str) -> None:
    server.redirect_to = target
    with pytest.raises(FetchFailed, match="isn't https"):
        fetch(one_file(), NAME, library, endpoint=server.endpoint)
    assert names(library) == []


@pytest.mark.parametrize(
    "path",
    ["../x.onnx", "/x.onnx", "a/../../x.onnx", "..", "a//x.onnx", "./x.onnx", "..\\x.onnx", "C:x.onnx", "", "x\0.onnx"],
)
def test_a_path_out_of_the_folder_is_refused(server: Server, library: ModelLibrary, path: str) -> None:
    with pytest.raises(InputError, match="outside its folder"):
        fetch(one_file(path=path), NAME, library, endpoint=server.endpoint)
    assert server.asked == []


def test_a_folder_model_is_downloaded_with_its_marker_last(server: Server, library: ModelLibrary) -> None:
    marker = ModelFile(path="config.json", url="r/tü.json", size_bytes=len(CONFIG), md5=md5(CONFIG))
    weights = ModelFile(path="sub/weights.bin", url="r/x.onnx", size_bytes=len(MODEL), md5=md5(MODEL))
    spec = published(marker, weights, layout=Layout(kind="folder", marker="config.json"))
    folder = fetch(spec, NAME, library, endpoint=server.endpoint)
    assert folder == library.folder(spec) / NAME
    assert (folder / "sub" / "weights.bin").read_bytes() == MODEL
    assert [path for path, _ in server.asked] == ["/r/x.onnx", "/r/t%C3%BC.json"]
    assert library.installed(spec) == {NAME: folder}


def test_an_unknown_model_lists_the_published_ones(library: ModelLibrary) -> None:
    with pytest.raises(UnknownName, match=f"Known: {NAME}"):
        fetch(published(), "joe", library)
    with pytest.raises(InputError, match="no models to download"):
        fetch(engine_spec("dummy"), "tones", library)


FILE = ModelFile(path="x", url="a/b ü.onnx", size_bytes=1, md5=md5(b""))


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (None, "https://huggingface.co/a/b%20%C3%BC.onnx"),
        ("", "https://huggingface.co/a/b%20%C3%BC.onnx"),
        ("https://mirror.example/", "https://mirror.example/a/b%20%C3%BC.onnx"),
        ("http://mirror.example/hf", "http://mirror.example/hf/a/b%20%C3%BC.onnx"),
    ],
)
def test_an_endpoint_takes_the_place_of_hugging_face(endpoint: str | None, url: str) -> None:
    assert file_url(FILE, endpoint) == url


@pytest.mark.parametrize("endpoint", ["mirror.example", "ftp://mirror.example", "file:///etc", "https://"])
def test_an_endpoint_that_is_no_web_address_is_refused(endpoint: str) -> None:
    with pytest.raises(InputError, match=r"the address to download from is .* it must be an https or http address"):
        file_url(FILE, endpoint)


@pytest.mark.parametrize("url", ["http://example.com/x", "ftp://example.com/x", "file:///x"])
def test_a_published_address_must_be_https(url: str) -> None:
    with pytest.raises(InputError, match="isn't an https address"):
        file_url(ModelFile(path="x", url=url, size_bytes=1, md5="0"))


def test_a_published_https_address_is_used_as_it_is() -> None:
    assert file_url(ModelFile(path="x", url="https://a.example/x", size_bytes=1), "https://b.example") == (
        "https://a.example/x"
    )


def test_every_published_voice_has_an_address() -> None:
    for variant in PIPER.variants:
        for file in variant.files:
            assert file_url(file).isascii()
            assert file_url(file).startswith("https://huggingface.co/rhasspy/piper-voices/resolve/")
