"""The routes answer as docs/openapi.json says, whatever is sent to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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

from devtools.comfyui import ComfyServer, prepare_base
from devtools.tree import Tree

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


@pytest.fixture(scope="module")
def plain(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    """A server without any model, so that whatever is asked, nothing long runs."""
    with ComfyServer(tree, prepare_base(tmp_path_factory.mktemp("openapi"))) as running:
        yield running


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_what_the_document_says(case: schemathesis.Case, plain: ComfyServer) -> None:
    case.call_and_validate(base_url=plain.url, checks=CHECKS)


def test_the_document_has_every_route_and_no_other(pack_module: Callable[[str], ModuleType]) -> None:
    routes, table = pack_module("nodes.routes"), web.RouteTableDef()
    routes.add_routes(table, None)
    served = {(route.method, path) for route in table for path in expanded(route.path, routes.ACTIONS)}
    told = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert served == told


def expanded(path: str, actions: tuple[str, ...]) -> list[str]:
    return [path.replace("{action}", action) for action in actions] if "{action}" in path else [path]
