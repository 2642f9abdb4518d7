"""HTTP under /mizuoto/v1: what is held, settings, models, and speech. No ComfyUI here; the bridge says where to serve.

Every answer is JSON, errors too, except speech that was waited for. Reads run on threads of their own, so that neither
a generation nor a model that is being loaded makes them wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from aiohttp import web

from ..mizuoto_runtime.describe import describe
from ..mizuoto_runtime.downloads import Downloads
from ..mizuoto_runtime.engines.registry import all_engines, engine_spec
from ..mizuoto_runtime.errors import (
    InputError,
    MissingDependency,
    MizuotoError,
    ModelBusy,
    ModelNotFound,
    ModelNotLoaded,
    NotEnoughMemory,
    UnknownName,
)
from ..mizuoto_runtime.fetch import LicenceNotAccepted, fetchable
from ..mizuoto_runtime.saved import SavedSettings
from ..mizuoto_runtime.types import ModelRef
from .declare import model_node_id
from .prompt import AUDIO_NODE, SpeakBody, speak_prompt
from .queue import QueueFailed, TimedOut, queued, spoken

LOG = logging.getLogger(__name__)
ROOT = "/mizuoto/v1"
MAX_BODY_BYTES = 1 << 20
MAX_WAIT_SECONDS = 3600.0
WAIT_SECONDS = 600.0
ACTIONS = ("unload", "offload", "pin", "unpin")


class BodyTooLarge(InputError):
    """A body of more than MAX_BODY_BYTES."""


class BodyNotJson(InputError):
    """A body of another type than application/json, as a web form of any page could send."""


STATUS: tuple[tuple[type[Exception], int], ...] = (
    (BodyTooLarge, 413),
    (BodyNotJson, 415),
    (ModelNotLoaded, 404),
    (ModelNotFound, 404),
    (ModelBusy, 409),
    (LicenceNotAccepted, 403),
    (MissingDependency, 424),
    (TimedOut, 504),
    (QueueFailed, 502),
    (NotEnoughMemory, 507),
    (InputError, 400),
    (MizuotoError, 500),
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Served(Protocol):
    """What the routes show and change."""

    def saved(self) -> SavedSettings: ...

    def runtime(self) -> Mapping[str, Any]:
        """What is held now, with the policy in force."""

    def doctor(self) -> Mapping[str, Any]: ...

    def library(self) -> Any: ...

    def apply(self, changes: Mapping[str, object]) -> None:
        """Change settings and keep them."""

    def pin(self, ref: ModelRef, *, pinned: bool) -> None:
        """Let a model give way last, or like the others, and keep that."""

    def unload(self, ref: ModelRef) -> None: ...

    def offload(self, ref: ModelRef) -> None: ...

    def downloads(self) -> Downloads: ...


def add_routes(table: web.RouteTableDef, served: Served) -> None:
    """Add all routes to a server's."""
    api = _Api(served)
    table.get(f"{ROOT}/runtime")(_guarded(api.runtime))
    table.get(f"{ROOT}/doctor")(_guarded(api.doctor))
    table.get(f"{ROOT}/engines")(_guarded(api.engines))
    table.get(f"{ROOT}/settings")(_guarded(api.settings))
    table.patch(f"{ROOT}/settings")(_guarded(api.change_settings))
    table.get(f"{ROOT}/downloads")(_guarded(api.downloads))
    table.post(f"{ROOT}/models/{{id}}/fetch")(_guarded(api.fetch))
    table.delete(f"{ROOT}/models/{{id}}/fetch")(_guarded(api.cancel_fetch))
    table.post(f"{ROOT}/models/{{id}}/{{action}}")(_guarded(api.act))
    table.post(f"{ROOT}/speak")(_guarded(api.speak))


class _Api:
    def __init__(self, served: Served) -> None:
        self._served = served

    async def runtime(self, request: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(self._served.runtime))

    async def doctor(self, request: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(self._served.doctor))

    async def engines(self, request: web.Request) -> web.Response:
        return _json({"engines": await asyncio.to_thread(self._described)})

    def _described(self) -> list[dict[str, Any]]:
        library = self._served.library()
        return [{**describe(spec, library), "loader_node": model_node_id(spec)} for spec in all_engines()]

    async def settings(self, request: web.Request) -> web.Response:
        return _json({"settings": await asyncio.to_thread(self._served.saved().facts)})

    async def change_settings(self, request: web.Request) -> web.Response:
        changes = await _body(request)
        await asyncio.to_thread(self._served.apply, changes)
        return await self.settings(request)

    async def downloads(self, request: web.Request) -> web.Response:
        return _json({"downloads": self._served.downloads().facts()})

    async def fetch(self, request: web.Request) -> web.Response:
        ref, body = _model_ref(request.match_info["id"]), await _body(request)
        _refuse_unknown(body, FETCH_FIELDS)
        accepts = _flag(body, "accept_licence")
        fetchable(engine_spec(ref.engine), ref.model, accepts_licence=accepts)
        return _json(self._served.downloads().start(ref, accepts), status=202)

    async def cancel_fetch(self, request: web.Request) -> web.Response:
        self._served.downloads().cancel(_model_ref(request.match_info["id"]))
        return await self.downloads(request)

    async def act(self, request: web.Request) -> web.Response:
        ref, action = _model_ref(request.match_info["id"]), request.match_info["action"]
        if action not in ACTIONS:
            raise UnknownName("action on a model", action, ACTIONS)
        await asyncio.to_thread(self._act, ref, action)
        return await self.runtime(request)

    def _act(self, ref: ModelRef, action: str) -> None:
        if action in ("pin", "unpin"):
            self._served.pin(ref, pinned=action == "pin")
        elif action == "unload":
            self._served.unload(ref)
        else:
            self._served.offload(ref)

    async def speak(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        wait, seconds = _flag(body, "wait"), _seconds(body)
        asked = _speak_body(body)
        prompt = speak_prompt(asked)
        await asyncio.to_thread(self._served.library().find, engine_spec(asked.engine), asked.model)
        if not wait:
            return _json({"prompt_id": (await queued(request, prompt)).prompt_id}, status=202)
        return await _audio(request, prompt, seconds)


async def _audio(request: web.Request, prompt: Mapping[str, Any], seconds: float) -> web.Response:
    audio, made = await spoken(request, prompt, AUDIO_NODE, seconds)
    return web.Response(body=audio, content_type="audio/flac", headers={"Mizuoto-Prompt-Id": made.prompt_id})


def _guarded(handler: Handler) -> Handler:
    """The handler, with every error as JSON."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except MizuotoError as error:
            status = next(status for kind, status in STATUS if isinstance(error, kind))
            return _error(status, type(error).__name__, str(error), **_prompt_of(error))
        except Exception as error:
            LOG.exception("%s %s failed", request.method, request.path)
            return _error(500, type(error).__name__, f"{error or type(error).__name__}; ComfyUI's log has the details")

    return guarded


def _prompt_of(error: Exception) -> dict[str, str]:
    prompt_id = getattr(error, "prompt_id", "")
    return {"prompt_id": prompt_id} if prompt_id else {}


def _json(content: object, status: int = 200) -> web.Response:
    text = json.dumps(content, ensure_ascii=False)
    return web.json_response(text=text, status=status, headers={"Cache-Control": "no-store"})


def _error(status: int, kind: str, message: str, **more: str) -> web.Response:
    return _json({"error": {"type": kind, "message": message, **more}}, status)


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request, at most a megabyte; any other type is refused, so that no web form can send one."""
    if request.content_type != "application/json":
        raise BodyNotJson(f"the body must be application/json; this is {request.content_type}")
    content = bytearray()
    async for block in request.content.iter_chunked(1 << 16):
        content += block
        if len(content) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"a body may have {MAX_BODY_BYTES:,} bytes; this one has more")
    try:
        value = json.loads(bytes(content), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body isn't valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"the body must be a JSON object; this is {type(value).__name__}")
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _model_ref(model_id: str) -> ModelRef:
    engine, separator, model = model_id.partition(":")
    if not separator or not model:
        raise InputError(f"model {model_id!r} must have the form engine:model")
    return ModelRef(engine_spec(engine).id, model)


FETCH_FIELDS = ("accept_licence",)
SPEAK_FIELDS = ("engine", "model", "text", "seed", "options", "texts", "recordings", "wait", "timeout_seconds")


def _speak_body(body: Mapping[str, Any]) -> SpeakBody:
    _refuse_unknown(body, SPEAK_FIELDS)
    for name in ("engine", "model", "text"):
        if not isinstance(body.get(name), str):
            raise InputError(f"{name} must be given, as a text")
    seed = body.get("seed", 0)
    if type(seed) is not int:
        raise InputError(f"seed must be a whole number; this is {seed!r}")
    return SpeakBody(
        engine=body["engine"],
        model=body["model"],
        text=body["text"],
        seed=seed,
        options=_mapping(body, "options"),
        texts=_texts(body, "texts"),
        recordings=_texts(body, "recordings"),
    )


def _refuse_unknown(body: Mapping[str, Any], fields: Sequence[str]) -> None:
    for name in body:
        if name not in fields:
            raise UnknownName("field", name, fields)


def _mapping(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name, {})
    if not isinstance(value, dict):
        raise InputError(f"{name} must be an object; this is {type(value).__name__}")
    return value


def _texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    value = _mapping(body, name)
    if not all(isinstance(text, str) for text in value.values()):
        raise InputError(f"{name} must hold texts only")
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false")
    return value


def _seconds(body: Mapping[str, Any]) -> float:
    value = body.get("timeout_seconds", WAIT_SECONDS)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_WAIT_SECONDS:
        raise InputError(f"timeout_seconds must be a number above 0, {MAX_WAIT_SECONDS:g} at most")
    return float(value)
