from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer
from devtools.tree import Tree, find_tree


@pytest.fixture(scope="session")
def tree() -> Tree:
    return find_tree(None)


@pytest.fixture(scope="session")
def bare_server(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    """ComfyUI without any custom node."""
    with ComfyServer(tree, tmp_path_factory.mktemp("bare-base"), pack=None) as server:
        yield server


@pytest.fixture
def client(bare_server: ComfyServer) -> ComfyClient:
    return ComfyClient(bare_server.url)
