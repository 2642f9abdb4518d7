"""Writes workflows/<name>.json and .jpg out of workflows/api/<name>.json, with ComfyUI's own editor.

Names on the command line: only these. All engines but Piper are played by tiny random models, whose noise no picture
shows.

Run by hand when a workflow changes, inside .venv: python tests/workflows/record.py [name …]
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, sync_playwright  # noqa: E402

from devtools import browser, install  # noqa: E402
from devtools.client import ComfyClient  # noqa: E402
from devtools.comfyui import ComfyServer, prepare_base  # noqa: E402
from devtools.voice import place_voice  # noqa: E402
from tests.golden.f5tts.checkpoint import install as install_f5tts  # noqa: E402
from tests.golden.omnivoice.checkpoint import install as install_omnivoice  # noqa: E402
from tests.golden.qwen3tts.placed import place_models  # noqa: E402
from tests.golden.voxcpm.checkpoint import install as install_voxcpm  # noqa: E402

WORKFLOWS = ROOT / "workflows"
VIEWPORT = {"width": 1360, "height": 700}
JPEG_QUALITY = 82
SETTLE_MS = 2000
SETTINGS = {
    "Comfy.TutorialCompleted": True,
    "Comfy.Graph.CanvasInfo": False,
    "Comfy.Graph.CanvasMenu": False,
    "Comfy.Minimap.Visible": False,
}
Place = tuple[float, float, float, float]

PLACES: dict[str, dict[str, Place]] = {
    "piper_speak": {
        "1": (0, 0, 300, 90),
        "2": (340, 0, 400, 280),
        "3": (780, 0, 340, 110),
        "4": (780, 210, 340, 380),
    },
    "piper_phases": {
        "1": (0, 0, 280, 90),
        "2": (320, 0, 340, 320),
        "3": (700, 0, 280, 150),
        "4": (1020, 0, 340, 110),
        "5": (1020, 210, 340, 380),
    },
    "qwen3tts_clone_voice": {
        "1": (0, 0, 320, 90),
        "2": (0, 160, 320, 140),
        "3": (360, 0, 340, 160),
        "4": (740, 0, 360, 470),
        "5": (1140, 0, 320, 110),
        "6": (1140, 160, 320, 110),
        "7": (1500, 0, 340, 470),
    },
    "qwen3tts_designed_voice": {
        "1": (0, 0, 340, 90),
        "2": (380, 0, 340, 110),
        "3": (760, 0, 380, 300),
        "4": (1180, 0, 340, 110),
        "5": (1180, 210, 340, 380),
    },
    "f5tts_clone": {
        "1": (0, 0, 300, 90),
        "2": (0, 160, 300, 140),
        "3": (340, 0, 300, 220),
        "4": (680, 0, 340, 480),
        "5": (1060, 0, 300, 80),
        "6": (1060, 130, 300, 110),
        "7": (1060, 340, 300, 300),
    },
    "voxcpm_clone": {
        "1": (0, 0, 300, 90),
        "2": (0, 160, 300, 140),
        "3": (340, 0, 320, 260),
        "4": (700, 0, 360, 520),
        "5": (1100, 0, 300, 80),
        "6": (1100, 130, 300, 110),
        "7": (1100, 340, 300, 300),
    },
    "omnivoice_clone": {
        "1": (0, 0, 300, 90),
        "2": (0, 160, 300, 140),
        "3": (340, 0, 300, 220),
        "4": (680, 0, 340, 520),
        "5": (1060, 0, 300, 160),
        "6": (1060, 210, 300, 110),
        "7": (1060, 420, 300, 300),
    },
}
NOTES: dict[str, tuple[Place, str]] = {
    "piper_speak": (
        (0, 160, 300, 170),
        "Pick a voice, write a text, press Run.\n\n"
        "A voice is two files, `name.onnx` and `name.onnx.json`, in `models/mizuoto/piper`.\n\n"
        "For pauses, speed or another speaker, connect **Piper Options** to `options`.",
    ),
    "piper_phases": (
        (0, 160, 280, 210),
        "The two halves of Piper as nodes.\n\n"
        "Change only **Piper Decode**, and **Piper Encode** doesn't run again.\n\n"
        "A voice is two files, `name.onnx` and `name.onnx.json`, in `models/mizuoto/piper`.",
    ),
    "qwen3tts_clone_voice": (
        (0, 350, 700, 200),
        "Load 3 to 15 seconds of one speaker without noise, write down what is said there, word for word, and press "
        "Run.\n\n"
        "Without `reference text` only the sound of the voice is taken. Change only the text, and the voice isn't "
        "taken again.\n\n"
        "The model is a folder in `models/mizuoto/qwen3tts`, with all files of "
        "`Qwen/Qwen3-TTS-12Hz-0.6B-Base`. Clone only voices whose owners agree.",
    ),
    "qwen3tts_designed_voice": (
        (0, 160, 720, 170),
        "Describe a voice, write a text, press Run. Another seed gives another such voice.\n\n"
        "The description may be English or Chinese.\n\n"
        "The model is a folder in `models/mizuoto/qwen3tts`, with all files of "
        "`Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign`.",
    ),
    "f5tts_clone": (
        (0, 350, 640, 160),
        "Choose a recording of 3 to 12 seconds, write down what is said in it, word for word, and a text.\n\n"
        "A model is a folder with `model_*.safetensors` and `vocab.txt`, such as `F5TTS_v1_Base`, in "
        "`models/mizuoto/f5tts`. Beside it stands `vocos`, with `config.yaml` and `pytorch_model.bin`.\n\n"
        "Another text or seed runs **F5-TTS Sample** again, not **F5-TTS Reference**.",
    ),
    "voxcpm_clone": (
        (0, 350, 660, 160),
        "Choose a recording of 3 to 15 seconds and write a text. VoxCPM 2 follows the recording's sound; with a "
        "`reference text`, word for word, the speech goes on from the recording. VoxCPM 1.5 and 0.5B need that "
        "text.\n\n"
        "A model is a folder in `models/mizuoto/voxcpm`, with all files of `openbmb/VoxCPM2`. Clone only voices whose "
        "owners agree.\n\n"
        "Another text or seed runs **VoxCPM Generate** again, not **VoxCPM Voice**.",
    ),
    "omnivoice_clone": (
        (0, 350, 640, 160),
        "Choose a recording of 3 to 10 seconds, write down what is said in it, word for word, and a text in any of 646 "
        "languages.\n\n"
        "The model is a folder in `models/mizuoto/omnivoice`, with all files of `k2-fsa/OmniVoice`. Without a "
        "recording, **OmniVoice Designed Voice** makes a voice from attributes.\n\n"
        "Another text or seed runs **OmniVoice Generate** again, not **OmniVoice Voice**. Clone only voices whose "
        "owners agree.",
    ),
}

LAY_OUT = """
async ([name, prompt, places, notePlace, noteText]) => {
  await app.loadApiJson(prompt, name)
  for (const [id, [x, y, width, height]] of Object.entries(places)) {
    const node = app.graph.getNodeById(Number(id))
    const title = prompt[id]._meta.title
    if (node.title !== title) node.title = title
    node.pos = [x, y]
    node.setSize([width, height])
    for (const widget of node.widgets ?? [])
      if (widget.name === 'control_after_generate') widget.value = 'fixed'
  }
  const note = LiteGraph.createNode('MarkdownNote')
  app.graph.add(note)
  note.title = 'Read me'
  note.pos = notePlace.slice(0, 2)
  note.setSize(notePlace.slice(2))
  note.widgets[0].value = noteText
  app.graph.setDirtyCanvas(true, true)
  return JSON.stringify((await app.graphToPrompt()).workflow)
}
"""
SHOW = """
async (workflow) => {
  await app.loadGraphData(workflow, true, false)
  const nodes = app.graph.nodes
  const left = Math.min(...nodes.map(node => node.pos[0]))
  const top = Math.min(...nodes.map(node => node.pos[1] - LiteGraph.NODE_TITLE_HEIGHT))
  const right = Math.max(...nodes.map(node => node.pos[0] + node.size[0]))
  const bottom = Math.max(...nodes.map(node => node.pos[1] + node.size[1]))
  const scale = Math.min((window.innerWidth - 80) / (right - left), (window.innerHeight - 80) / (bottom - top))
  app.canvas.ds.scale = scale
  app.canvas.ds.offset = [
    (window.innerWidth / scale - left - right) / 2,
    (window.innerHeight / scale - top - bottom) / 2,
  ]
  app.canvas.setDirty(true, true)
}
"""


def portable(name: str, text: str) -> dict[str, Any]:
    """The workflow without what belongs to this machine: where the canvas was, which packs and versions are here."""
    workflow: dict[str, Any] = json.loads(text)
    workflow["id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"mizuoto/{name}"))
    workflow["extra"] = {"ds": {"scale": 0.9, "offset": [80, 60]}}
    for node in workflow["nodes"]:
        node.get("properties", {}).pop("ver", None)
        node.get("properties", {}).pop("ue_properties", None)
    return workflow


def record(page: Page, client: ComfyClient, name: str) -> None:
    prompt = json.loads((WORKFLOWS / "api" / f"{name}.json").read_text(encoding="utf-8"))
    note_place, note_text = NOTES[name]
    workflow = portable(name, page.evaluate(LAY_OUT, [name, prompt, PLACES[name], note_place, note_text]))
    text = json.dumps(workflow, ensure_ascii=False, indent=2) + "\n"
    (WORKFLOWS / f"{name}.json").write_text(text, encoding="utf-8")
    page.evaluate(SHOW, workflow)
    page.evaluate("async () => { await app.queuePrompt(0) }")
    while '"execution_success"' not in json.dumps(client.get_json("/history")):
        page.wait_for_timeout(200)
    page.wait_for_timeout(SETTLE_MS)
    client.post_json("/history", {"clear": True})
    page.screenshot(path=WORKFLOWS / f"{name}.jpg", type="jpeg", quality=JPEG_QUALITY)


def main() -> None:
    tree = install.ensure(None, test_tools=True)
    executable = browser.find()
    assert executable is not None, browser.ADVICE
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        base = prepare_base(Path(folder))
        place_voice(base)
        place_models(base)
        install_f5tts(base)
        install_voxcpm(base)
        install_omnivoice(base)
        with ComfyServer(tree, base) as server:
            client = ComfyClient(server.url)
            client.post_json("/settings", SETTINGS)
            chromium = playwright.chromium.launch(**browser.launch_options(executable))
            page = chromium.new_page(viewport=VIEWPORT)
            page.goto(server.url)
            page.wait_for_function("window.app && window.app.vueAppReady")
            page.evaluate("() => app.extensionManager.command.execute('Workspace.ToggleFocusMode')")
            for name in sys.argv[1:] or PLACES:
                record(page, client, name)
            chromium.close()


if __name__ == "__main__":
    main()
