"""Talks to a ComfyUI server: queue, watch, history, view, interrupt, free. Synchronous; needs websocket-client."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import websocket

from .errors import DevError

Json = dict[str, Any]
HISTORY_WAIT_S = 10.0


class ClientError(DevError):
    """Base of what a ComfyUI server can answer or do that is not success."""


class ServerGone(ClientError):
    """The server does not answer (any more)."""


class RequestFailed(ClientError):
    """An HTTP answer other than success. `status` is the code, `body` the text."""

    def __init__(self, message: str, status: int, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class PromptRejected(ClientError):
    """The server found the prompt invalid. `node_errors` is its answer per node id."""

    def __init__(self, message: str, node_errors: Json) -> None:
        super().__init__(message)
        self.node_errors = node_errors


class ExecutionFailed(ClientError):
    """A node raised. `details` is the server's record: node_id, node_type, exception_type, exception_message, …"""

    def __init__(self, message: str, details: Json, entry: Json) -> None:
        super().__init__(message)
        self.details = details
        self.entry = entry


class ExecutionInterrupted(ClientError):
    """The run was cancelled. `entry` is its history entry."""

    def __init__(self, message: str, entry: Json) -> None:
        super().__init__(message)
        self.entry = entry


class RunTimeout(ClientError):
    """The run did not end in time; it has been interrupted."""


@dataclass(frozen=True)
class Event:
    """A websocket message: its type, its data, and when it arrived on the clock of `time.monotonic`."""

    type: str
    data: Json
    at_s: float = field(default_factory=time.monotonic)


OnEvent = Callable[[Event], None]


def _rejection(answer: Json) -> PromptRejected:
    """One readable message out of the error body of POST /prompt."""
    error = answer.get("error") or {}
    if isinstance(error, str):
        error = {"message": error}
    reason = f"{error.get('message', 'no reason given')} {error.get('details') or ''}".rstrip()
    lines = [f"ComfyUI refused the workflow: {reason}"]
    node_errors = answer.get("node_errors") or {}
    for node_id, node in dict(node_errors).items():
        for found in node.get("errors", []):
            details = f": {found['details']}" if found.get("details") else ""
            lines.append(f"  node {node_id} ({node.get('class_type')}): {found.get('message')}{details}")
    return PromptRejected("\n".join(lines), dict(node_errors))


class ComfyClient:
    """One client of the server at `url`, such as http://127.0.0.1:8188. Proxies in the environment are not used."""

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self.client_id = uuid.uuid4().hex
        self.timeout_s = timeout_s
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(self, path: str, body: object = None) -> bytes:
        """GET `path`, or POST `body` as JSON if it is given. Raises `RequestFailed`, `ServerGone`."""
        data = None if body is None else json.dumps(body).encode("utf-8")
        request = urllib.request.Request(self.url + path, data=data, headers={"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=self.timeout_s) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode("utf-8", errors="replace")
            message = f"{path} answered {error.code} {error.reason}: {text[:500]}"
            raise RequestFailed(message, error.code, text) from error
        except OSError as error:
            raise ServerGone(f"the server at {self.url} does not answer: {error}") from error

    def get_json(self, path: str) -> Any:
        return json.loads(self.request(path))

    def post_json(self, path: str, body: object) -> Any:
        """POST JSON; returns the decoded answer, or None if it is empty."""
        answer = self.request(path, body)
        return json.loads(answer) if answer.strip() else None

    def object_info(self, class_type: str | None = None) -> Json:
        """Node declarations by class type; all of them without `class_type`."""
        suffix = "" if class_type is None else "/" + urllib.parse.quote(class_type, safe="")
        return dict(self.get_json(f"/object_info{suffix}"))

    def queue(self, prompt: Mapping[str, Any], *, extra_data: Mapping[str, Any] | None = None) -> str:
        """Queue a prompt in API format and return its id. Raises `PromptRejected`."""
        body = {"prompt": prompt, "client_id": self.client_id, "extra_data": dict(extra_data or {})}
        try:
            return str(self.post_json("/prompt", body)["prompt_id"])
        except RequestFailed as error:
            try:
                answer = json.loads(error.body)
            except ValueError:
                raise error from None
            if error.status != 400 or not isinstance(answer, dict):
                raise
            raise _rejection(answer) from error

    def history(self, prompt_id: str) -> Json | None:
        """The history entry of a finished run, else None."""
        entry = self.get_json(f"/history/{prompt_id}").get(prompt_id)
        return None if entry is None else dict(entry)

    def view(self, file: Mapping[str, str]) -> bytes:
        """The content of an output file, as an entry's outputs name it: filename, subfolder, type."""
        query = {name: file.get(name, "") for name in ("filename", "subfolder", "type")}
        return self.request(f"/view?{urllib.parse.urlencode(query)}")

    def interrupt(self, prompt_id: str | None = None) -> None:
        """Cancel the running prompt, or only if it is `prompt_id`."""
        self.post_json("/interrupt", {} if prompt_id is None else {"prompt_id": prompt_id})

    def free(self, *, unload_models: bool = True, free_memory: bool = True) -> None:
        """Ask the server to unload models and drop its execution cache.

        Done before the next prompt or, if the request comes while one ends or begins, only after the next.
        """
        self.post_json("/free", {"unload_models": unload_models, "free_memory": free_memory})

    def run(self, prompt: Mapping[str, Any], on_event: OnEvent | None = None, timeout_s: float = 600.0) -> Json:
        """Queue a prompt, pass each of its websocket events to `on_event`, and return its history entry.

        Raises `PromptRejected`, `ExecutionFailed`, `ExecutionInterrupted`, `RunTimeout`, `ServerGone`. `on_event` runs
        on the caller's thread and may call this client, for example `interrupt`.
        """
        deadline_s = time.monotonic() + timeout_s
        with _Events(self.url, self.client_id) as events:
            prompt_id = self.queue(prompt)
            for event in events.of(prompt_id, deadline_s):
                if event is None:
                    if self.history(prompt_id) is not None:
                        break
                elif on_event is not None:
                    on_event(event)
        if time.monotonic() > deadline_s and self.history(prompt_id) is None:
            self.interrupt(prompt_id)
            raise RunTimeout(f"the run did not end in {timeout_s:.0f} s and was interrupted")
        return _judged(self._finished(prompt_id))

    def _finished(self, prompt_id: str) -> Json:
        """The history entry of a run that has just ended; the last event may come a moment before it."""
        deadline_s = time.monotonic() + HISTORY_WAIT_S
        while True:
            entry = self.history(prompt_id)
            if entry is not None:
                return entry
            if time.monotonic() > deadline_s:
                raise ServerGone(f"the run ended, but /history/{prompt_id} stays empty")
            time.sleep(0.02)


class _Events:
    """The websocket of one client."""

    def __init__(self, url: str, client_id: str) -> None:
        address = f"{url.replace('http', 'ws', 1)}/ws?clientId={client_id}"
        try:
            self._socket = websocket.create_connection(address, timeout=10, http_no_proxy=["*"])
        except (OSError, websocket.WebSocketException) as error:
            raise ServerGone(f"no websocket from {url}: {error}") from error
        self._socket.settimeout(1.0)

    def __enter__(self) -> _Events:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def of(self, prompt_id: str, deadline_s: float) -> Iterator[Event | None]:
        """Events of one run until its last; None after each second without one."""
        while time.monotonic() < deadline_s:
            try:
                message = self._socket.recv()
            except websocket.WebSocketTimeoutException:
                yield None
                continue
            except (OSError, websocket.WebSocketException) as error:
                raise ServerGone(f"the server closed the connection during the run: {error}") from error
            if not isinstance(message, str) or not message:
                continue  # a binary message is a preview picture
            decoded = json.loads(message)
            data = decoded.get("data") or {}
            if data.get("prompt_id") != prompt_id:
                continue
            yield Event(decoded["type"], data)
            if decoded["type"] == "executing" and data.get("node") is None:
                return


def status_messages(entry: Json) -> dict[str, Json]:
    """The run's record of what happened to it: message type to its data, with a `timestamp` in ms."""
    return {str(kind): dict(data) for kind, data in entry.get("status", {}).get("messages", [])}


def _judged(entry: Json) -> Json:
    """The entry of a successful run; raises for any other."""
    messages = status_messages(entry)
    if "execution_interrupted" in messages:
        raise ExecutionInterrupted("the run was interrupted", entry)
    if "execution_error" in messages or entry.get("status", {}).get("status_str") == "error":
        details = messages.get("execution_error", {})
        node = f"node {details.get('node_id')} ({details.get('node_type')})"
        kind = str(details.get("exception_type", "")).rpartition(".")[2]
        reason = f"{kind}: {str(details.get('exception_message', '')).strip()}"
        raise ExecutionFailed(f"{node} failed: {reason}", details, entry)
    return entry
