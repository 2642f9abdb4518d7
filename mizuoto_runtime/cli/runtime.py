"""`runtime`: what a running server holds, as bars in the terminal."""

from __future__ import annotations

import argparse
import json
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InputError, MizuotoError

if TYPE_CHECKING:
    from .arguments import Commands

URL = "http://127.0.0.1:8188"
PATH = "/mizuoto/v1/runtime"
TIMEOUT_SECONDS = 10.0
INTERVAL_SECONDS = 1.0
MAX_ANSWER_BYTES = 1 << 24
MIN_BAR, MAX_BAR, BESIDE_BAR = 10, 60, 50
CLEAR = "\x1b[H\x1b[2J"
PARTS = (("loaded_bytes", "█"), ("streamed_bytes", "▒"), ("host_bytes", "·"))
SHARES = (("application_bytes", "▓"), ("own_bytes", "█"), ("other_bytes", "▒"), ("free_bytes", "·"))
LEGEND = "█ on the device  ▒ streamed  · in RAM only"


def add_to(commands: Commands) -> None:
    runtime = commands.add_parser("runtime", help="show what a running ComfyUI holds of Mizuoto's models")
    runtime.add_argument("--url", default=URL, help=f"the server; {URL} if it isn't given")
    runtime.add_argument("--json", action="store_true")
    runtime.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    runtime.set_defaults(run=_run)


def _run(namespace: argparse.Namespace) -> int:
    while True:
        facts = _asked(namespace.url)
        shown = json.dumps(facts, ensure_ascii=False) if namespace.json else text(facts, _bar_width())
        clear = CLEAR if namespace.watch and not namespace.json and sys.stdout.isatty() else ""
        print(clear + shown, flush=True)
        if not namespace.watch:
            return 0
        time.sleep(INTERVAL_SECONDS)


def _bar_width() -> int:
    return min(MAX_BAR, max(MIN_BAR, shutil.get_terminal_size().columns - BESIDE_BAR))


def _asked(url: str) -> dict[str, Any]:
    """The server's answer. InputError for what is no address; MizuotoError if there is no such server."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"--url {url!r} must begin with http:// or https://")
    try:
        with urllib.request.urlopen(url.rstrip("/") + PATH, timeout=TIMEOUT_SECONDS) as answer:
            facts = json.loads(answer.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        why = "Mizuoto isn't installed there, or an older one" if error.code == 404 else "see ComfyUI's log"
        raise MizuotoError(f"{url} answers {error.code}: {why}") from error
    except (OSError, ValueError) as error:
        if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
            advice = "if it is the server's own, let SSL_CERT_FILE name its file"
            raise MizuotoError(f"{url} answers, but its certificate isn't trusted ({error}); {advice}") from error
        raise MizuotoError(f"no ComfyUI answers at {url}: {error}; start it, or give its address with --url") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("models"), list):
        raise MizuotoError(f"{url} answers something else than a runtime report; is it ComfyUI?")
    return facts


def text(facts: Mapping[str, Any], width: int) -> str:
    """The report for people, with bars of `width` signs."""
    return "\n".join((*_device(facts, width), "", *_models(facts, width)))


def _device(facts: Mapping[str, Any], width: int) -> Iterator[str]:
    shares, device = facts["shares"], facts["device"]
    if shares is None:
        ram = facts["ram"]
        yield f"{device['name']}: in RAM, {_mb(ram['free_bytes'])} of {_mb(ram['total_bytes'])} free"
        return
    yield f"{device['name']} {device['product']}".rstrip() + f": {_mb(shares['total_bytes'])}"
    yield "  " + bar(shares, SHARES, shares["total_bytes"], width)
    names = ("application", "own", "other", "free")
    figures = (f"{sign} {name} {_mb(shares[key])}" for (key, sign), name in zip(SHARES, names, strict=True))
    yield "  " + "  ".join(figures)


def _models(facts: Mapping[str, Any], width: int) -> Iterator[str]:
    if not facts["models"]:
        yield "no model is loaded"
        return
    for model in facts["models"]:
        state = "busy" if model["busy"] else f"idle for {model['idle_seconds']:.0f} s"
        pinned = ", pinned" if model["pinned"] else ""
        yield f"{model['engine_label']} {model['model']}, {_mb(model['size_bytes'])}, {state}{pinned}"
        longest = max((len(part["name"]) for part in model["components"]), default=0)
        for part in model["components"]:
            drawn = bar(part, PARTS, part["size_bytes"], width)
            yield f"  {part['name']:{longest}}  {drawn}  {_mb(part['loaded_bytes'])} of {_mb(part['size_bytes'])}"
    yield LEGEND


def bar(sizes: Mapping[str, int], parts: tuple[tuple[str, str], ...], total_bytes: int, width: int) -> str:
    """`parts` side by side, each as long as its share of `total_bytes`, together exactly `width` signs."""
    drawn, done_bytes = "", 0
    for key, sign in parts:
        done_bytes += sizes[key]
        end = round(width * done_bytes / total_bytes) if total_bytes else 0
        drawn += sign * (end - len(drawn))
    return drawn + parts[-1][1] * (width - len(drawn))


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MB"
