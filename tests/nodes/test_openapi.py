"""The routes answer as docs/openapi.json says, whatever is sent to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer
from tests.nodes import prompts

pytestmark = pytest.mark.server

FILE = Path(__file__).resolve().parent.parent.parent / "docs" / "openapi.json"
DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_what_the_document_says(case: schemathesis.Case, simulated: ComfyServer) -> None:
    case.call_and_validate(base_url=simulated.url, checks=CHECKS)


def test_what_is_held_is_told_as_the_document_says(simulated: ComfyServer, server: ComfyServer) -> None:
    """With a model on a device, and on a plain CPU, which has no shares."""
    ComfyClient(simulated.url).run(prompts.speak("Piper", "Hello.", seed=61))
    for running in (simulated, server):
        case = SCHEMA["/mizuoto/v1/runtime"]["GET"].Case()
        answer = case.call_and_validate(base_url=running.url, checks=CHECKS).json()
        assert (answer["shares"] is None) is (running is server)
        assert (answer["models"] != []) or running is server


def test_the_document_has_every_route_and_no_other(pack_module: Callable[[str], ModuleType]) -> None:
    routes, table = pack_module("nodes.routes"), web.RouteTableDef()
    routes.add_routes(table, None)
    served = {(route.method, path) for route in table for path in expanded(route.path, routes.ACTIONS)}
    told = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert served == told


def expanded(path: str, actions: tuple[str, ...]) -> list[str]:
    return [path.replace("{action}", action) for action in actions] if "{action}" in path else [path]
