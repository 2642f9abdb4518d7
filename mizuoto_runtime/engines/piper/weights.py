"""Loads a Piper voice: its two files → its settings, its sizes and its two modules.

The exported weights are converted once into a safetensors file (see `weights.cache`), from which they are mapped, not
copied. Where that file can't be written they are copied out of the `.onnx` each time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ...errors import ModelFileError, ModelNotFound
from ...weights.cache import WeightCache
from ...weights.onnx import OnnxGraph, read_onnx
from ...weights.raw import RawTensor
from ...weights.wire import WireError
from .architecture import VitsConfig
from .config import PiperConfig, read_config
from .derive import INVERSE_SCALE, derive_config, weight_names
from .export import ExportedVoice
from .model import VoiceDecoder, VoiceEncoder

FORM = "piper-1"
UNSTATED_HOP_LENGTH = 256
"""What `PiperConfig.hop_length` is for settings that leave it out; so this value says nothing about the model."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Voice:
    """A loaded voice. `encoder` and `decoder` are on the CPU, in float32, for inference only."""

    config: PiperConfig
    vits: VitsConfig
    encoder: VoiceEncoder
    decoder: VoiceDecoder


def load_voice(path: Path, *, cache: bool = True) -> Voice:
    """Load the voice at `path`: its `.onnx` file, or a folder with exactly one.

    `cache`: keep the converted weights beside the voice, and use what is kept there.
    Raises ModelNotFound if there is no such file, ModelFileError if one of its files is not what it should be.
    """
    onnx_path, config_path = voice_files(path)
    config = read_config(config_path)
    kept = WeightCache(onnx_path, FORM) if cache else None
    loaded = _load_kept(kept) if kept else None
    vits, encoder, decoder = loaded or _convert(onnx_path, kept)
    _check_agreement(config, vits, config_path)
    return Voice(config, vits, encoder, decoder)


def voice_files(path: Path) -> tuple[Path, Path]:
    """The `.onnx` and the `.onnx.json` of the voice at `path`."""
    if path.is_dir():
        found = sorted(path.glob("*.onnx"))
        if len(found) != 1:
            names = ", ".join(each.name for each in found[:5]) or "none"
            raise ModelNotFound(f"{path}: holds {len(found)} .onnx files ({names}); name one voice")
        path = found[0]
    config_path = path.with_name(f"{path.name}.json")
    if not path.is_file():
        raise ModelNotFound(f"{path}: there is no such file; put the voice's .onnx and .onnx.json there")
    if not config_path.is_file():
        raise ModelFileError(f"{path}: {config_path.name} is missing beside it; a Piper voice is both files")
    return path, config_path


def _load_kept(kept: WeightCache) -> tuple[VitsConfig, VoiceEncoder, VoiceDecoder] | None:
    path = kept.find()
    if path is None:
        return None
    try:
        return _read_converted(path)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        _log.warning("%s is damaged and will be written anew: %s", path, error)
        return None


def _read_converted(path: Path) -> tuple[VitsConfig, VoiceEncoder, VoiceDecoder]:
    with safe_open(path, framework="pt") as file:
        vits = VitsConfig.from_json(file.metadata()["architecture"])
        names = file.keys()
        return vits, *_build(vits, {name: file.get_tensor(name) for name in names})


def _convert(path: Path, kept: WeightCache | None) -> tuple[VitsConfig, VoiceEncoder, VoiceDecoder]:
    graph = read_onnx(path)
    vits, tensors = read_weights(graph)
    written = kept.store(graph.sha256, tensors, {"architecture": vits.to_json()}) if kept else None
    if written is not None:
        return _read_converted(written)
    return vits, *_build(vits, {name: tensor.to_torch() for name, tensor in tensors.items()})


def read_weights(graph: OnnxGraph) -> tuple[VitsConfig, dict[str, RawTensor]]:
    """The sizes of an exported voice and all its weights under the names of our parameters.

    Raises ModelFileError for a missing, an unexpected or a misshapen weight, by name.
    """
    try:
        voice = ExportedVoice(graph)
        vits = derive_config(voice)
        tensors = {target: voice.weight(source) for target, source in weight_names(vits)}
        if INVERSE_SCALE in (wanted := _parameter_shapes(vits)):
            tensors[INVERSE_SCALE] = _inverse_scale(voice)
        voice.check_all_used()
    except WireError as error:
        raise ModelFileError(f"{graph.path}: damaged: {error}. Download the file again.") from error
    if wanted.keys() != tensors.keys():
        raise voice.error(f"these weights don't fit its sizes: {sorted(wanted.keys() ^ tensors.keys())}")
    for name, shape in wanted.items():
        if tensors[name].shape != shape:
            got = tensors[name]
            raise voice.error(f"the weight {got.name!r} is {list(got.shape)}; {name} needs {list(shape)}")
    return vits, tensors


def _inverse_scale(voice: ExportedVoice) -> RawTensor:
    stored, functions = voice.duration_scale()
    value = stored.to_torch()
    for function in functions:
        value = value.exp() if function == "Exp" else value.neg()
    return RawTensor(stored.name, stored.dtype, stored.shape, memoryview(value.numpy().tobytes()))


def _parameter_shapes(vits: VitsConfig) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in _empty(vits).state_dict().items()}


def _empty(vits: VitsConfig) -> nn.ModuleDict:
    with torch.device("meta"):
        return nn.ModuleDict({"encoder": VoiceEncoder(vits), "decoder": VoiceDecoder(vits)})


def _build(vits: VitsConfig, tensors: Mapping[str, Tensor]) -> tuple[VoiceEncoder, VoiceDecoder]:
    modules = _empty(vits)
    other = next((name for name, tensor in tensors.items() if tensor.dtype != torch.float32), None)
    if other is not None:
        raise ValueError(f"{other} is {tensors[other].dtype}, not float32")
    modules.load_state_dict(tensors, strict=True, assign=True)
    modules.requires_grad_(False).eval()
    encoder, decoder = modules["encoder"], modules["decoder"]
    assert isinstance(encoder, VoiceEncoder) and isinstance(decoder, VoiceDecoder)
    return encoder, decoder


def _check_agreement(config: PiperConfig, vits: VitsConfig, config_path: Path) -> None:
    highest = max((each for ids in config.phoneme_id_map.values() for each in ids), default=0)
    if highest >= vits.num_symbols:
        raise ModelFileError(
            f"{config_path}: phoneme_id_map goes up to {highest}, but the model has {vits.num_symbols} symbols; "
            "the two files belong to different voices"
        )
    if config.hop_length not in (UNSTATED_HOP_LENGTH, vits.hop_length):
        raise ModelFileError(
            f"{config_path}: hop_length is {config.hop_length}, but the model makes {vits.hop_length} samples of each "
            "frame; the two files belong to different voices"
        )
    if config.num_speakers != vits.num_speakers:
        raise ModelFileError(
            f"{config_path}: num_speakers is {config.num_speakers}, but the model has {vits.num_speakers}; "
            "the two files belong to different voices"
        )
