"""ComfyUI behind https, as with its --tls-keyfile: speech over HTTP, and the command line."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.comfyui import ComfyServer, prepare_base
from devtools.tree import Tree
from tests.nodes.http_api import Api

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parent.parent.parent
CERTIFICATE = Path(__file__).parent / "tls"
"""Made for these tests, for 127.0.0.1, and good for nothing else."""
SPEECH = {"engine": "dummy", "model": "tones", "text": "do re mi", "options": {"tone_seconds": 0.02}}


@pytest.fixture(scope="module")
def secure(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    with ComfyServer(tree, prepare_base(tmp_path_factory.mktemp("tls")), certificate=CERTIFICATE) as running:
        yield running


def test_speech_is_queued_and_waited_for(secure: ComfyServer) -> None:
    api = Api(secure.url, ssl.create_default_context(cafile=str(CERTIFICATE / "cert.pem")))
    assert secure.url.startswith("https://")
    status, content, kind = api.ask("POST", "/speak", {**SPEECH, "wait": True})
    assert (status, kind, content[:4]) == (200, "audio/flac", b"fLaC"), content[:500]
    assert api.send("POST", "/speak", {**SPEECH, "seed": 1})["prompt_id"]


def test_the_command_line_says_how_to_trust_a_certificate(secure: ComfyServer) -> None:
    command = [sys.executable, "-m", "mizuoto_runtime", "runtime", "--url", secure.url, "--json"]
    for trusted in ({}, {"SSL_CERT_FILE": str(CERTIFICATE / "cert.pem")}):
        environment = {**os.environ, "SSL_CERT_FILE": "", **trusted}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=120
        )
        if trusted:
            assert (done.returncode, done.stderr) == (0, "") and '"models"' in done.stdout
        else:
            assert done.returncode == 1
            assert "its certificate isn't trusted" in done.stderr and "SSL_CERT_FILE" in done.stderr
