"""Many prompts on a real server that shares a device: nothing grows, and the books are true after each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from devtools.tree import Tree
from tests.nodes.bridge import serving

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform != "linux", reason="reads what the process holds from /proc"),
]

PROMPTS, WARM_UP = 24, 12
MOST_ENTRIES = 4
"""The picture's model, Piper's two components and Dummy's one."""
MOST_RSS_BYTES = 32 << 20


def test_nothing_grows_with_the_prompts(tree: Tree, tmp_path: Path) -> None:
    with serving.server(tree, tmp_path) as running:
        growth = serving.run(running, PROMPTS, warm_up=WARM_UP)
        assert growth.entries <= MOST_ENTRIES
        assert growth.after.files <= growth.before.files + 1, "the client's own connection may not be closed yet"
        assert growth.after.threads <= growth.before.threads
        assert growth.after.rss_bytes - growth.before.rss_bytes < MOST_RSS_BYTES, growth
