"""Loads the codec and the speaker encoder from their checkpoints: safetensors, one or shards, mapped and strict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ...errors import ModelFileError, ModelNotFound
from ...weights.entries import Entry, read_json
from .codec_config import CodecConfig, SpeakerConfig, parse_speaker_config, read_codec_config
from .codec_decoder import CodecDecoder
from .codec_encoder import JOINED, CodecEncoder
from .codec_vocoder import JOINED_FROM
from .speaker_encoder import SpeakerEncoder

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_LISTED = 4
Rename = Callable[[str], str | None]
"""A name in a checkpoint → ours; None: a weight that isn't used."""

_UNUSED_BY_DECODER = r"quantizer\.rvq_(first|rest)\.input_proj\.weight"
_UNUSED_BY_ENCODER = r"quantizer\.\w+\.(output_proj\.weight|layers\.\d+\.codebook\.initialized)"
_LAYER = (
    (r"\.input_layernorm\.", r".input_norm."),
    (r"\.post_attention_layernorm\.", r".mlp_norm."),
    (r"\.self_attn\.", r".attention."),
    (r"\.self_attn_layer_scale\.scale$", r".attention_scale"),
    (r"\.mlp_layer_scale\.scale$", r".mlp_scale"),
)
_DECODER = (
    *_LAYER,
    (r"^quantizer\.rvq_first\.", r"semantic."),
    (r"^quantizer\.rvq_rest\.", r"acoustic."),
    (r"\.vq\.layers\.(\d+)\._codebook\.cluster_usage$", r".books.\1.usage"),
    (r"\.vq\.layers\.(\d+)\._codebook\.embedding_sum$", r".books.\1.sums.weight"),
    (r"^pre_transformer\.(norm|layers)\.", r"\1."),
    (r"^layers\.", r"transformer.layers."),
    (r"^pre_transformer\.input_proj\.", r"input."),
    (r"^pre_transformer\.output_proj\.", r"output."),
    (r"^(semantic|acoustic)\.output_proj\.", r"\1.output."),
    (r"^upsample\.(\d+)\.0\.", r"upsamplings.\1.upsample."),
    (r"^upsample\.(\d+)\.1\.", r"upsamplings.\1.block."),
    (r"\.dwconv\.", r".depthwise."),
    (r"\.pwconv1\.", r".widen."),
    (r"\.pwconv2\.", r".narrow."),
    (r"\.act1\.", r".dilated_activation."),
    (r"\.act2\.", r".pointwise_activation."),
    (r"\.conv1\.conv\.", r".dilated."),
    (r"\.conv2\.conv\.", r".pointwise."),
    (r"\.conv\.(weight|bias)$", r".\1"),
)
_ENCODER = (
    *_LAYER,
    (r"^encoder_transformer\.", r"transformer."),
    (r"^quantizer\.(semantic|acoustic)_residual_vector_quantizer\.", r"\1."),
    (r"\.layers\.(\d+)\.codebook\.cluster_usage$", r".books.\1.usage"),
    (r"\.layers\.(\d+)\.codebook\.embed_sum$", r".books.\1.sums"),
    (r"^(semantic|acoustic)\.input_proj\.", r"\1.input."),
    (r"\.conv\.(weight|bias)$", r".\1"),
)
_SPEAKER = (
    (r"^blocks\.0\.conv\.", r"first."),
    (r"\.tdnn1\.conv\.", r".input."),
    (r"\.tdnn2\.conv\.", r".output."),
    (r"\.res2net_block\.blocks\.(\d+)\.conv\.", r".res2net.convs.\1."),
    (r"\.se_block\.conv1\.", r".squeeze."),
    (r"\.se_block\.conv2\.", r".excite."),
    (r"^mfa\.conv\.", r"aggregate."),
    (r"^asp\.tdnn\.conv\.", r"attention_input."),
    (r"^asp\.conv\.", r"attention_output."),
    (r"^fc\.", r"output."),
)


def load_codec(folder: Path, dtype: torch.dtype, *, encoding: bool = True) -> tuple[CodecDecoder, CodecEncoder | None]:
    """The codec in `folder` (a checkpoint's `speech_tokenizer`), on the CPU, for inference only.

    dtype: of all weights; what has it already is mapped, not copied. encoding: whether the encoder is wanted.
    Raises ModelNotFound if there is no codec, ModelFileError if one of its files is not what it should be.
    """
    config = read_codec_config(folder)
    checkpoint = Checkpoint(folder)
    checkpoint.check_prefixes("decoder.", "encoder.")
    with torch.device("meta"):
        decoder = CodecDecoder(config.decoder)
        encoder = CodecEncoder(config.encoder) if encoding else None
    checkpoint.fill(decoder, "decoder.", decoder_rename(config), dtype)
    if encoder is not None:
        checkpoint.fill(encoder, "encoder.", encoder_rename(config), dtype)
    return decoder, encoder


def load_speaker_encoder(folder: Path, dtype: torch.dtype) -> SpeakerEncoder:
    """The speaker encoder of the checkpoint in `folder`, as `load_codec` does. Only Base checkpoints have one."""
    path = folder / "config.json"
    config = speaker_config(read_json(path), source=str(path))
    with torch.device("meta"):
        speaker_encoder = SpeakerEncoder(config)
    Checkpoint(folder).fill(speaker_encoder, "speaker_encoder.", _speaker_name, dtype)
    return speaker_encoder


def speaker_config(content: object, *, source: str) -> SpeakerConfig:
    """The speaker encoder's sizes in a decoded config.json."""
    return parse_speaker_config(Entry(content, source).get("speaker_encoder_config", {}), source=source)


class Checkpoint:
    """The safetensors files of `folder`. ModelNotFound if there are none; every other fault is a ModelFileError."""

    def __init__(self, folder: Path) -> None:
        single, index = folder / WEIGHTS, folder / INDEX
        if single.is_file():
            self.path = single
            with _opened(single) as file:
                self._files = dict.fromkeys(file.keys(), single)
        elif index.is_file():
            self.path = index
            self._files = _shards(index)
        else:
            raise ModelNotFound(f"{folder}: has neither {WEIGHTS} nor {INDEX}; download the model again")

    def check_prefixes(self, *prefixes: str) -> None:
        """Refuse names that begin with none of `prefixes`."""
        self._refuse([name for name in self._files if not name.startswith(prefixes)])

    def dtype(self, prefix: str) -> torch.dtype:
        """Of the first weight under `prefix`; ModelFileError if there is none."""
        tensor = next((tensor for _, tensor in self._tensors(prefix)), None)
        if tensor is None:
            raise ModelFileError(f"{self.path}: holds no weights under {prefix!r}; is it another model's?")
        return tensor.dtype

    def fill(self, module: nn.Module, prefix: str, rename: Rename, dtype: torch.dtype) -> None:
        """Give `module`, built on the meta device, the weights under `prefix`: all of them, and no others."""
        wanted = {name: tensor.shape for name, tensor in module.state_dict().items()}
        found: dict[str, Tensor] = {}
        unexpected = []
        for name, tensor in self._tensors(prefix):
            target = rename(name.removeprefix(prefix))
            if target is None:
                continue
            if target not in wanted or target in found:
                unexpected.append(name)
                continue
            self._check(name, tensor, wanted[target])
            found[target] = tensor.to(dtype)
        self._refuse(unexpected)
        missing = wanted.keys() - found.keys()
        if missing:
            raise ModelFileError(
                f"{self.path}: {len(missing)} weights under {prefix!r} are missing: {_listed(missing)}; "
                "download the file again"
            )
        module.load_state_dict(found, strict=True, assign=True)
        module.requires_grad_(False).eval()

    def _check(self, name: str, tensor: Tensor, shape: torch.Size) -> None:
        if tensor.shape != shape or not tensor.is_floating_point():
            raise ModelFileError(
                f"{self._files[name]}: the weight {name!r} is {list(tensor.shape)} {tensor.dtype}; by its config.json "
                f"it is {list(shape)}. The two files belong to different models"
            )

    def _refuse(self, unexpected: list[str]) -> None:
        if unexpected:
            raise ModelFileError(f"{self.path}: unexpected weights: {_listed(unexpected)}; it is another model's")

    def _tensors(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        names = [name for name in self._files if name.startswith(prefix)]
        for path in dict.fromkeys(self._files[name] for name in names):
            with _opened(path) as file:
                there = set(file.keys())
                for name in names:
                    if self._files[name] != path:
                        continue
                    if name not in there:
                        raise ModelFileError(f"{path}: lacks {name!r}, which {INDEX} says it holds; download it again")
                    yield name, file.get_tensor(name)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path}: truncated, or no safetensors file ({error}); download it again") from error


def _shards(index: Path) -> dict[str, Path]:
    places = Entry(read_json(index), str(index)).entry("weight_map").content
    if not places:
        raise ModelFileError(f"{index}: weight_map is empty; download the file again")
    for name, shard in places.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not (index.parent / shard).is_file():
            raise ModelFileError(f"{index}: {name!r} should be in {shard!r}, which isn't beside it; download it again")
    return {name: index.parent / shard for name, shard in places.items()}


def decoder_rename(config: CodecConfig) -> Rename:
    """Names under `decoder.`: official → ours. The vocoder's blocks are joined to stages, so it depends on how many."""
    last = len(config.decoder.upsample_rates)

    def rename(name: str) -> str | None:
        part, rest = _numbered(r"decoder\.(\d+)\.(.*)", name)
        if part == 0:
            name = f"vocoder.input.{rest}"
        elif part in (last + 1, last + 2):
            kind = "activation" if part == last + 1 else "conv"
            name = f"vocoder.{_stage(last)}.{kind}.{rest}"
        elif part is not None:
            name = f"vocoder.{_stage(part - 1)}.{_block_name(rest)}"
        return None if re.fullmatch(_UNUSED_BY_DECODER, name) else _renamed(name, _DECODER)

    return rename


def _stage(block: int) -> str:
    return f"stages.{min(block, JOINED_FROM)}.parts.{max(0, block - JOINED_FROM)}"


def _block_name(name: str) -> str:
    part, rest = _numbered(r"block\.(\d+)\.(.*)", name)
    if part is None:
        return name
    kind = {0: "activation", 1: "upsample"}.get(part, f"units.{part - 2}")
    return f"{kind}.{rest}"


def encoder_rename(config: CodecConfig) -> Rename:
    """Names under `encoder.`: official → ours. Unused quantizers are left out."""
    sizes = config.encoder
    books = {"semantic": sizes.semantic, "acoustic": sizes.used - sizes.semantic}
    names = dict(_seanet_names(sizes.residual_layers, len(sizes.ratios)))

    def rename(name: str) -> str | None:
        layer, rest = _numbered(r"encoder\.layers\.(\d+)\.(.*)", name)
        if layer is not None:
            name = f"{names.get(layer, f'layer {layer}')}.{rest}"
            for theirs, ours in ((".block.1.", ".narrow."), (".block.3.", ".widen.")):
                name = name.replace(theirs, ours)
        found = re.match(r"quantizer\.(\w+)_residual_vector_quantizer\.layers\.(\d+)\.", name)
        if found and found[1] in books and books[found[1]] <= int(found[2]) < sizes.quantizers:
            return None
        return None if re.fullmatch(_UNUSED_BY_ENCODER, name) else _renamed(name, _ENCODER)

    return rename


def _seanet_names(residual_layers: int, stages: int) -> Iterator[tuple[int, str]]:
    """Numbers of the SEANet's layers that have weights → our names; activations count as layers."""
    yield 0, "first.parts.0"
    layer = 1
    for stage in range(stages):
        name = f"first.parts.{stage + 1}" if stage < JOINED else f"stages.{stage - JOINED}"
        for block in range(residual_layers):
            yield layer, f"{name}.blocks.{block}"
            layer += 1
        yield layer + 1, f"{name}.conv"
        layer += 2
    yield layer + 1, "output"


def _speaker_name(name: str) -> str | None:
    renamed = _renamed(name, _SPEAKER)
    block, rest = _numbered(r"blocks\.(\d+)\.(.*)", renamed)
    return renamed if block is None else f"blocks.{block - 1}.{rest}"


def _renamed(name: str, renames: Sequence[tuple[str, str]]) -> str:
    for pattern, replacement in renames:
        name = re.sub(pattern, replacement, name)
    return name


def _numbered(pattern: str, name: str) -> tuple[int | None, str]:
    found = re.fullmatch(pattern, name)
    return (int(found[1]), found[2]) if found else (None, name)


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MAX_LISTED} more" if len(ordered) > MAX_LISTED else ""
    return ", ".join(map(repr, ordered[:MAX_LISTED])) + more
