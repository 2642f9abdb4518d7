"""The shipped workflows: what lies where, and that each API file runs through the queue to audio."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import av
import numpy
import pytest

from devtools.client import ComfyClient
from devtools.workflow import load_prompt
from tests.nodes import prompts

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOWS = ROOT / "workflows"
NAMES = sorted(path.stem for path in WORKFLOWS.glob("*.json"))
TITLE_HEIGHT = 30
SAVE_HEIGHT, MODEL_HEIGHT = 165, 115
"""What an editor with Nodes 2.0 needs for a node that saves audio, and for a loader with its button."""
RATES_HZ = {"piper": 22_050, "qwen3tts": 24_000, "f5tts": 24_000, "voxcpm": 48_000, "omnivoice": 24_000}


def test_each_workflow_has_an_api_file_and_a_picture() -> None:
    assert {name.partition("_")[0] for name in NAMES} == set(RATES_HZ)
    assert sorted(path.stem for path in (WORKFLOWS / "api").iterdir()) == NAMES
    assert sorted(path.stem for path in WORKFLOWS.glob("*.jpg")) == NAMES
    assert {path.suffix for path in WORKFLOWS.iterdir() if path.is_file()} == {".json", ".jpg"}


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_a_picture(name: str) -> None:
    with av.open(str(WORKFLOWS / f"{name}.jpg")) as container:
        frame = next(container.decode(video=0))
    assert frame.width >= 800 and frame.height >= 400
    assert numpy.std(frame.to_ndarray(format="gray")) > 5


def box(node: dict[str, Any]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a node with its title."""
    (x, y), (width, height) = node["pos"], node["size"]
    is_loader = re.fullmatch(r"Mizuoto\w+Model", node["type"])
    needed = SAVE_HEIGHT if node["type"] == "SaveAudio" else MODEL_HEIGHT if is_loader else 0
    return x, y - TITLE_HEIGHT, x + width, y + max(height, needed)


@pytest.mark.parametrize("name", NAMES)
def test_the_editors_file_is_tidy(name: str) -> None:
    text = (WORKFLOWS / f"{name}.json").read_text(encoding="utf-8")
    workflow = json.loads(text)
    notes = [node for node in workflow["nodes"] if node["type"] == "MarkdownNote"]
    assert len(notes) == 1 and len(notes[0]["widgets_values"][0]) > 40
    for one, other in itertools.combinations(map(box, workflow["nodes"]), 2):
        apart_x = one[2] <= other[0] or other[2] <= one[0]
        apart_y = one[3] < other[1] or other[3] < one[1]
        assert apart_x or apart_y, "two nodes overlap or touch"
    assert "undefined" not in text and "null, null" not in text


@pytest.mark.server
@pytest.mark.parametrize("name", NAMES)
def test_the_api_file_runs_to_audio(client: ComfyClient, name: str) -> None:
    entry = client.run(load_prompt(WORKFLOWS / "api" / f"{name}.json"))
    audio, rate_hz = prompts.samples(client, entry)
    report = prompts.report(entry)
    assert rate_hz == report["sample_rate_hz"] == RATES_HZ[report["engine"]]
    assert audio.shape[1] == report["length_samples"]
    assert audio.shape[1] / rate_hz > 3
    assert 0.01 < numpy.sqrt(numpy.mean(audio**2)) < 0.5


@pytest.mark.server
def test_the_template_browser_lists_them(client: ComfyClient) -> None:
    assert sorted(client.get_json("/api/workflow_templates")["mizuoto"]) == NAMES
    for name in NAMES:
        for suffix in ("json", "jpg"):
            served = client.request(f"/api/workflow_templates/mizuoto/{name}.{suffix}")
            assert served == (WORKFLOWS / f"{name}.{suffix}").read_bytes()
