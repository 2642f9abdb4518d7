"""Workflow files in ComfyUI's API format."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from .errors import DevError

Prompt = dict[str, Any]
PACK_PREFIX = "Mizuoto"


def load_prompt(path: Path) -> Prompt:
    """Read a prompt: node id to {class_type, inputs}. Raises `DevError` for all else, the editor's format included."""
    try:
        prompt = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DevError(f"the workflow {path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise DevError(f"the workflow {path} is not JSON: {error}") from error
    if isinstance(prompt, dict) and isinstance(prompt.get("nodes"), list):
        raise DevError(
            f"{path} is a workflow in the editor's format, which the queue does not take. Open it in ComfyUI, "
            "choose Workflow > Export (API), and give the exported file"
        )
    if not isinstance(prompt, dict) or not prompt:
        raise DevError(f"{path} holds no workflow in API format (an object from node id to class_type and inputs)")
    for node_id, node in prompt.items():
        if not isinstance(node, dict) or not isinstance(node.get("class_type"), str) or "inputs" not in node:
            raise DevError(f"{path}: node {node_id!r} has no class_type and inputs. Export it again with Export (API)")
    return prompt


def with_text(prompt: Prompt, text: str) -> Prompt:
    """A copy in which every node of the pack with a typed-in `text` says `text`. Raises `DevError` if there is none."""
    changed = copy.deepcopy(prompt)
    speakers = [
        node
        for node in changed.values()
        if node["class_type"].startswith(PACK_PREFIX) and isinstance(node["inputs"].get("text"), str)
    ]
    if not speakers:
        raise DevError("--text has nothing to replace: no node of the pack in the workflow has a text typed into it")
    for node in speakers:
        node["inputs"]["text"] = text
    return changed


def output_files(entry: Prompt, kind: str = "audio") -> list[dict[str, str]]:
    """Saved output files of a history entry as {filename, subfolder, type}, in node order."""
    return [file for output in entry.get("outputs", {}).values() for file in output.get(kind, [])]


def output_texts(entry: Prompt) -> list[str]:
    """Texts that the entry's preview nodes show, in node order."""
    return [str(text) for output in entry.get("outputs", {}).values() for text in output.get("text", [])]
