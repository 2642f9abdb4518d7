"""Requests to the pack's own HTTP routes."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

from tests.nodes import prompts

PIPER = f"piper:{prompts.VOICE}"
LONG = "This sentence is spoken again and again. " * 40
MB = 1 << 20


class Api:
    """Requests to /mizuoto/v1 of one server. trusted: what certificates an https server may have."""

    def __init__(self, url: str, trusted: ssl.SSLContext | None = None) -> None:
        self.url = f"{url}/mizuoto/v1"
        self._trusted = trusted

    def ask(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes, str]:
        """Status, body and content type."""
        content = raw if raw is not None or body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind} if content is not None else {}
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120, context=self._trusted) as answer:
                return answer.status, answer.read(), answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers.get_content_type()

    def get(self, path: str) -> Any:
        status, content, _ = self.ask("GET", path)
        assert status == 200, content
        return json.loads(content)

    def send(self, method: str, path: str, body: object = None) -> Any:
        status, content, _ = self.ask(method, path, body)
        assert status in (200, 202), content
        return json.loads(content)

    def error(self, method: str, path: str, body: object = None, **more: Any) -> tuple[int, str, str]:
        """Status, kind and message of an error."""
        status, content, kind = self.ask(method, path, body, **more)
        assert kind == "application/json", content
        error = json.loads(content)["error"]
        return status, error["type"], error["message"]

    def models(self) -> dict[str, Any]:
        return {model["id"]: model for model in self.get("/runtime")["models"]}

    def saved(self) -> list[str]:
        return [item["name"] for item in self.get("/settings")["settings"] if item["source"] == "saved"]

    def reset(self) -> None:
        """Once nothing runs: let go of all models, and take all settings back."""
        deadline_s = time.monotonic() + 60
        while any(model["busy"] for model in self.models().values()):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        for model_id in self.models():
            self.send("POST", f"/models/{model_id}/unload")
        self.send("PATCH", "/settings", dict.fromkeys(self.saved()))
