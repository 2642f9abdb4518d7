"""Voices, and their files: `<name>.json` says what the voice is, `<name>.safetensors` holds its tensors, if any."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from ...errors import InputError, ModelFileError, UnknownName
from ...weights.entries import MAX_CONFIG_BYTES, check_size, read_entry
from ...weights.store import replacing
from .config import Qwen3TtsConfig

FORMAT = "mizuoto qwen3tts voice"
VERSION = 1
Kind = Literal["clone", "preset", "design"]
NEEDED_TYPE = {"clone": "base", "preset": "custom_voice", "design": "voice_design"}
PUBLISHED = {"base": "Base", "custom_voice": "CustomVoice", "voice_design": "VoiceDesign"}
_NAME = re.compile(r"[\w](?:[\w \-]{0,62}[\w\-])?")


@dataclass(frozen=True, kw_only=True)
class Voice:
    """Who speaks. speaker: of a preset voice; description: of a designed one.

    Of a cloned one, on the CPU: x_vector, float32 (talker's width); if its text is known also codes, int64 (groups,
    frames), and text.
    """

    kind: Kind
    speaker: str = ""
    description: str = ""
    x_vector: Tensor | None = None
    codes: Tensor | None = None
    text: str = ""

    def check(self, config: Qwen3TtsConfig) -> None:
        """InputError if a model with this configuration can't speak with the voice."""
        wanted = NEEDED_TYPE[self.kind]
        if config.model_type != wanted:
            raise InputError(
                f"the voice is for a {PUBLISHED[wanted]} model, this is a {PUBLISHED[config.model_type]} model; "
                "connect one model to both nodes"
            )
        talker = config.talker
        if self.x_vector is not None and len(self.x_vector) != talker.width:
            raise InputError(
                f"the voice was made by a model of width {len(self.x_vector):,}, this one's is {talker.width:,}; make "
                "it again with this model"
            )
        if self.codes is not None and (len(self.codes) != talker.groups or not _within(self.codes, config)):
            raise InputError("the voice's codes are of another codec than this model's; make it again with this model")
        if self.speaker:
            config.speaker(self.speaker)


def _within(codes: Tensor, config: Qwen3TtsConfig) -> bool:
    highest = codes.amax(dim=1)
    limits = torch.tensor([config.talker.vocab] + [config.talker.predictor_vocab] * (config.talker.groups - 1))
    return bool((highest < limits).all()) and int(codes.min()) >= 0


def save_voice(voice: Voice, folder: Path, name: str) -> Path:
    """Write the voice into `folder` under `name`, whole or not at all; returns its `.json`."""
    path = _path(folder, name)
    described = {
        "format": FORMAT,
        "version": VERSION,
        "kind": voice.kind,
        "speaker": voice.speaker,
        "description": voice.description,
        "text": voice.text,
    }
    tensors = {}
    if voice.x_vector is not None:
        tensors["x_vector"] = voice.x_vector.float().contiguous()
    if voice.codes is not None:
        tensors["codes"] = voice.codes.long().contiguous()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path.with_suffix(".safetensors")) as file:
            file.write(save(tensors))
        with replacing(path) as file:
            file.write(json.dumps(described, ensure_ascii=False, indent=1).encode())
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror or error}") from error
    return path


def load_voice(folder: Path, name: str) -> Voice:
    """The voice called `name` in `folder`. UnknownName lists those there are; ModelFileError for a damaged file."""
    path = _path(folder, name)
    if not path.is_file():
        raise UnknownName("voice", name, [each.stem for each in folder.glob("*.json")])
    entries = read_entry(path)
    entries.only("format", None, FORMAT)
    entries.integer("version", VERSION, VERSION)
    kind = cast(Kind, entries.only("kind", None, *NEEDED_TYPE))
    tensors = _tensors(path.with_suffix(".safetensors"))
    voice = Voice(
        kind=kind,
        speaker=entries.text("speaker", ""),
        description=entries.text("description", ""),
        x_vector=tensors.get("x_vector"),
        codes=tensors.get("codes"),
        text=entries.text("text", ""),
    )
    if (kind == "clone") is (voice.x_vector is None) or (voice.codes is not None and not voice.text):
        raise entries.error("", "doesn't fit its .safetensors file; save the voice again")
    return voice


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        check_size(path, MAX_CONFIG_BYTES)
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{path}: missing or damaged ({error}); save the voice again") from error
    shapes = {"x_vector": (1, torch.float32), "codes": (2, torch.int64)}
    for key, tensor in tensors.items():
        if key not in shapes or (tensor.ndim, tensor.dtype) != shapes[key] or not tensor.numel():
            raise ModelFileError(f"{path}: holds {key!r} of {tuple(tensor.shape)} {tensor.dtype}; save the voice again")
        if not bool(tensor.isfinite().all()):
            raise ModelFileError(f"{path}: {key!r} isn't finite; save the voice again")
    return tensors


def _path(folder: Path, name: str) -> Path:
    """The voice's `.json`; InputError for a name that isn't one on every system."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name for a voice; use up to 64 letters, digits, spaces, - and _")
    return folder / f"{name}.json"
