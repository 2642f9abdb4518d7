"""`dev.py demo`: a real ComfyUI server speaks a workflow, and the audio is saved."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from . import install
from .comfyui import ComfyServer, prepare_base
from .errors import DevError
from .paths import BASE, ROOT
from .voice import place_voice
from .workflow import PACK_PREFIX, Prompt, load_prompt, output_files, output_texts, with_text

DEFAULT_WORKFLOW = ROOT / "workflows" / "api" / "piper_speak.json"
RUN_TIMEOUT_S = 24 * 3600.0


def demo(workflow: Path | None, *, text: str | None, out: Path, comfyui: Path | None) -> int:
    """Run the demo; returns 0, or raises `DevError`."""
    prompt = load_prompt(workflow or DEFAULT_WORKFLOW)
    if text is not None:
        prompt = with_text(prompt, text)
    out = _writable(out)
    tree = install.ensure(comfyui)
    base = prepare_base(BASE)
    place_voice(base)
    print(f"starting ComfyUI {tree.version} …", flush=True)
    with ComfyServer(tree, base) as server:
        _speak(server, prompt, out)
    return 0


def _writable(out: Path) -> Path:
    """`out` as an absolute path in a folder that can be written, checked before the work begins."""
    out = out.expanduser().absolute()
    if out.is_dir():
        raise DevError(f"--out {out} is a folder. Give a file name such as {out / 'demo.flac'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DevError(f"--out: the folder {out.parent} can't be made: {error.strerror}") from error
    if not os.access(out.parent, os.W_OK):
        raise DevError(f"--out: the folder {out.parent} can't be written. Give another one")
    return out


def _require_pack(server: ComfyServer, class_types: set[str]) -> None:
    """Raise if the server lacks a node of the pack, which means that the pack could not be loaded."""
    from .client import ComfyClient

    known = ComfyClient(server.url).object_info()
    missing = sorted(name for name in class_types if name.startswith(PACK_PREFIX) and name not in known)
    if missing and any(name.startswith(PACK_PREFIX) for name in known):
        raise DevError(f"the pack has no node {', '.join(missing)}; it has {', '.join(_pack_nodes(known))}")
    if missing:
        raise server.failure("ComfyUI could not load the pack")


def _pack_nodes(known: dict[str, Any]) -> list[str]:
    return sorted(name for name in known if name.startswith(PACK_PREFIX))


def _speak(server: ComfyServer, prompt: Prompt, out: Path) -> None:
    from .client import ComfyClient, ServerGone
    from .progress import ProgressBar

    _require_pack(server, {node["class_type"] for node in prompt.values()})
    client = ComfyClient(server.url)
    bar = ProgressBar(prompt, sys.stdout)
    try:
        entry = client.run(prompt, bar, RUN_TIMEOUT_S)
    except ServerGone:
        server.check()
        raise
    finally:
        bar.close()
    files = output_files(entry)
    if not files:
        raise DevError("the workflow ran but saved no audio. Add a SaveAudio node to it")
    execution_s = _execution_s(entry)
    for index, file in enumerate(files, start=1):
        path = _target(out, Path(file["filename"]).suffix, index)
        _report(path, client.view(file), execution_s)
    for shown in output_texts(entry):
        print(shown, flush=True)


def _target(out: Path, suffix: str, index: int) -> Path:
    """Where the index-th audio goes: the asked name, numbered from the second on, with the suffix of what it holds."""
    path = out if index == 1 else out.with_name(f"{out.stem}-{index}{out.suffix}")
    if suffix and path.suffix.lower() != suffix.lower():
        print(f"note: the workflow saves {suffix} audio, so {path.name} becomes {path.stem}{suffix}", flush=True)
        path = path.with_suffix(suffix)
    return path


def _execution_s(entry: Prompt) -> float:
    """Wall time of the run in seconds, by the server's own record."""
    from .client import status_messages

    messages = status_messages(entry)
    return float(messages["execution_success"]["timestamp"] - messages["execution_start"]["timestamp"]) / 1000


def audio_duration_s(content: bytes) -> float:
    """Duration in seconds of an encoded audio file, by decoding all of it."""
    import av

    with av.open(io.BytesIO(content)) as container:
        return float(sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0)))


def _report(path: Path, content: bytes, execution_s: float) -> None:
    duration_s = audio_duration_s(content)
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise DevError(f"{path} can't be written: {error.strerror}. Give another --out") from error
    factor = f"{execution_s / duration_s:.3f}" if duration_s else "none, the audio is empty"
    print(f"saved:            {path}")
    print(f"duration:         {duration_s:.2f} s")
    print(f"real-time factor: {factor} ({execution_s:.2f} s of work, loading included)", flush=True)
