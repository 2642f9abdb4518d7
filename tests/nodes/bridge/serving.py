"""Prompts of speech and of ComfyUI's own models in turns on a real server with a fake device, and what it holds."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools.client import ComfyClient
from devtools.comfyui import ComfyServer, prepare_base
from devtools.tree import Tree
from devtools.voice import place_voice
from devtools.workflow import output_texts
from tests.nodes import prompts

SPARE_MB = 64  # the voice, or the picture's model with the tenth more that ComfyUI asks for, but not both
SIMULATED_MB = 8192
PACK = "bridge_test"
KINDS = ("piper", "dummy", "picture")
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""What is freed leaves the process; else glibc keeps tens of megabytes in pieces, and hides what grows."""


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    rss_bytes: int
    files: int
    threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        proc = Path("/proc") / str(pid)
        pages = int((proc / "statm").read_text().split()[1])
        return cls(pages * 4096, len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir())))


@contextmanager
def server(tree: Tree, folder: Path) -> Iterator[ComfyServer]:
    """A server whose memory management has a fake device."""
    base = prepare_base(folder)
    place_voice(base)
    pack = base / "custom_nodes" / PACK
    pack.mkdir()
    shutil.copyfile(Path(__file__).with_name("server_nodes.py"), pack / "__init__.py")
    environment = GIVE_BACK | {"TEST_SPARE_MB": str(SPARE_MB), "MIZUOTO_COMPUTE__SIMULATE_VRAM_MB": str(SIMULATED_MB)}
    arguments = ["--whitelist-custom-nodes", "mizuoto", PACK, "--cache-none"]
    with ComfyServer(tree, base, extra_args=arguments, env=environment) as running:
        yield running


class Visitor:
    """Queues prompts, and checks the books after each."""

    def __init__(self, running: ComfyServer) -> None:
        self.client = ComfyClient(running.url)
        self._pid = running.pid
        self.entries = 0

    def measure(self) -> Held:
        """What the server holds while the same things lie on its device."""
        for kind in KINDS:
            self.ask(kind, 0)
        return Held.by(self._pid)

    def ask(self, kind: str, number: int) -> dict[str, Any]:
        """Run one prompt; what its last node tells."""
        if kind == "picture":
            prompt = {"picture": prompts.node("TestPicture", number=number)}
        else:
            prompt = prompts.speak(kind.capitalize(), "All is well.", seed=number)
            del prompt["save"], prompt["report"]
            prompt["speech"] = prompts.node("TestSpeech", audio=["speak", 0])
        (text,) = output_texts(self.client.run(prompt, timeout_s=120))
        facts: dict[str, Any] = json.loads(text)
        assert facts["speech_bytes"] == facts["charged_bytes"], facts
        assert facts["dead"] == 0 and facts["free_bytes"] >= 0, facts
        self.entries = max(self.entries, facts["entries"])
        return facts


@dataclass(frozen=True)
class Growth:
    """From the end of the warm-up to the end of the run. entries: the most on ComfyUI's list at any time."""

    prompts: int
    before: Held
    after: Held
    entries: int

    @property
    def rss_bytes_per_prompt(self) -> float:
        return (self.after.rss_bytes - self.before.rss_bytes) / self.prompts


def run(running: ComfyServer, count: int, *, warm_up: int, seed: int = 1) -> Growth:
    """`count` prompts at random after `warm_up` others. The first of each kind gives the same again at the end."""
    rng = random.Random(seed)
    visitor = Visitor(running)
    first = {kind: visitor.ask(kind, 0)["digest"] for kind in KINDS}
    for number in range(1, warm_up):
        visitor.ask(rng.choice(KINDS), number)
    before = visitor.measure()
    for number in range(warm_up, warm_up + count):
        visitor.ask(rng.choice(KINDS), number)
    after = visitor.measure()
    visitor.client.free(unload_models=True, free_memory=True)
    assert first == {kind: visitor.ask(kind, 0)["digest"] for kind in KINDS}
    return Growth(count, before, after, visitor.entries)
