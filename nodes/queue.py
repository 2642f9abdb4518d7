"""Puts a workflow into the queue of the server that a request came to, by that server's own API, and waits for it."""

from __future__ import annotations

import asyncio
import json
import ssl
import uuid
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from aiohttp import web

from ..mizuoto_runtime.errors import InputError, MizuotoError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDS = ("execution_success", "execution_error", "execution_interrupted")


class QueueFailed(MizuotoError):
    """The server didn't take the workflow, or its run failed."""

    def __init__(self, message: str, prompt_id: str = "") -> None:
        super().__init__(message)
        self.prompt_id = prompt_id


class TimedOut(MizuotoError):
    """The run takes longer than the request wanted to wait. It goes on."""

    def __init__(self, message: str, prompt_id: str) -> None:
        super().__init__(message)
        self.prompt_id = prompt_id


class Queued(NamedTuple):
    """A workflow in the queue."""

    prompt_id: str


async def queued(request: web.Request, prompt: Mapping[str, Any], client_id: str = "") -> Queued:
    """Queue `prompt`. InputError if the server refuses it, with its reasons."""
    async with _server(request) as server:
        return await _queue(server, prompt, client_id)


async def spoken(
    request: web.Request, prompt: Mapping[str, Any], node: str, timeout_seconds: float
) -> tuple[bytes, Queued]:
    """Queue `prompt`, wait until it ends, and return the file that `node` saved."""
    client_id = uuid.uuid4().hex
    async with _server(request) as server, server.ws_connect(f"/ws?clientId={client_id}", max_msg_size=0) as events:
        made = await _queue(server, prompt, client_id)
        try:
            file = await asyncio.wait_for(_saved(events, made, node), timeout_seconds)
        except asyncio.TimeoutError as error:
            where = f"it goes on, see /history/{made.prompt_id}"
            raise TimedOut(f"the run isn't done after {timeout_seconds:g} s; {where}", made.prompt_id) from error
        return await _view(server, made, file), made


async def _queue(server: aiohttp.ClientSession, prompt: Mapping[str, Any], client_id: str) -> Queued:
    content = {"prompt": prompt, **({"client_id": client_id} if client_id else {})}
    async with server.post("/prompt", json=content) as answer:
        text = await answer.text()
        if answer.status == 400:
            raise InputError(f"the workflow was refused: {_reasons(text)}")
        if answer.status != 200:
            raise QueueFailed(f"the queue answered {answer.status}: {text[:200]}")
        return Queued(str(json.loads(text)["prompt_id"]))


def _reasons(text: str) -> str:
    """What ComfyUI says of a refused workflow, in a line."""
    try:
        answer = json.loads(text)
        nodes = answer.get("node_errors") or {}
        errors = [error for node in nodes.values() for error in node["errors"]] or [answer["error"]]
        return "; ".join(f"{error['message']}: {error.get('details', '')}".rstrip(": ") for error in errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:200]


async def _saved(events: aiohttp.ClientWebSocketResponse, made: Queued, node: str) -> dict[str, str]:
    """The file that `node` saved, once the run has ended well. The history may not know of it yet."""
    files: list[dict[str, str]] = []
    async for message in events:
        if message.type is not aiohttp.WSMsgType.TEXT:
            continue
        event = json.loads(message.data)
        data = event.get("data") or {}
        if data.get("prompt_id") != made.prompt_id:
            continue
        if event.get("type") == "executed" and data.get("node") == node:
            files = (data.get("output") or {}).get("audio") or []
        if event.get("type") not in ENDS:
            continue
        if event["type"] == "execution_interrupted":
            raise QueueFailed("the run was cancelled", made.prompt_id)
        if event["type"] == "execution_error":
            raise QueueFailed(f"the run failed: {data.get('exception_message', '').strip()}", made.prompt_id)
        if len(files) == 1:
            return files[0]
        raise QueueFailed(f"the run saved {len(files)} files instead of one", made.prompt_id)
    raise QueueFailed("the connection to the queue ended", made.prompt_id)


async def _view(server: aiohttp.ClientSession, made: Queued, file: Mapping[str, str]) -> bytes:
    async with server.get("/view", params={name: file[name] for name in ("filename", "subfolder", "type")}) as answer:
        if answer.status != 200:
            raise QueueFailed(f"the saved file can't be read, status {answer.status}", made.prompt_id)
        return await answer.read()


@asynccontextmanager
async def _server(request: web.Request) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the server that `request` came to, at the address where it came in."""
    transport = request.transport
    if transport is None:
        raise QueueFailed("the connection is closed")
    address, port = transport.get_extra_info("sockname")[:2]
    secure = transport.get_extra_info("ssl_object") is not None
    host = f"[{address}]" if ":" in address else address
    connector = aiohttp.TCPConnector(ssl=_own_certificate()) if secure else None
    base = f"{'https' if secure else 'http'}://{host}:{port}"
    timeout = aiohttp.ClientTimeout(total=None, connect=10)
    async with aiohttp.ClientSession(base, connector=connector, timeout=timeout, trust_env=False) as session:
        yield session


def _own_certificate() -> ssl.SSLContext:
    """The server is this very process, whatever name its certificate has."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
