"""Loads the codec from its safetensors file, mapped and strict. What only training needs is never read."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ModelFileError, ModelNotFound
from ...loader import Loader
from ...memory.handle import ModelHandle
from ...weights.checkpoint import INDEX, WEIGHTS, listed, opened_safetensors, opened_shards, renamed
from ...weights.pages import converted, give_back_pages
from .codec_config import CodecConfig, read_codec_config
from .codec_decoder import CodecDecoder
from .codec_encoder import CodecEncoder

ENCODER, DECODER = "codec_encoder", "codec_decoder"
Names = Sequence[tuple[str, str]]
"""Patterns of official names, and ours."""

_UNUSED = (
    r"(decoder_semantic|fc1)\..*|semantic_model\.masked_spec_embed"
    r"|quantizer\.quantizers\.\d+\.codebook\.(embed_avg|cluster_size|inited)"
)
_POSITIONS = r"semantic_model\.encoder\.pos_conv_embed\.conv\."
_SCALE, _DIRECTION = "positions.scale", "positions.direction"
"""The two parts of a weight that is stored normalised."""
_ACOUSTIC: Names = (
    (r"\.block\.(\d+)\.", r".stages.\1."),
    (r"\.res_unit1\.", r".units.0."),
    (r"\.res_unit2\.", r".units.1."),
    (r"\.res_unit3\.", r".units.2."),
    (r"(units\.\d)\.snake1\.", r"\1.dilated_activation."),
    (r"(units\.\d)\.conv1\.", r"\1.dilated."),
    (r"(units\.\d)\.snake2\.", r"\1.pointwise_activation."),
    (r"(units\.\d)\.conv2\.", r"\1.pointwise."),
    (r"(stages\.\d+)\.snake1\.", r"\1.activation."),
    (r"(stages\.\d+)\.conv1\.", r"\1.conv."),
    (r"(stages\.\d+)\.conv_t1\.", r"\1.upsample."),
    (r"^(acoustic_\w+)\.conv1\.", r"\1.input."),
    (r"^(acoustic_\w+)\.snake1\.", r"\1.activation."),
    (r"^(acoustic_\w+)\.conv2\.", r"\1.output."),
)
_ENCODER: Names = (
    (_POSITIONS + r"(parametrizations\.weight\.original0|weight_g)$", _SCALE),
    (_POSITIONS + r"(parametrizations\.weight\.original1|weight_v)$", _DIRECTION),
    (r"^semantic_model\.encoder\.pos_conv_embed\.", r"hubert.positions."),
    (r"^semantic_model\.feature_extractor\.conv_layers\.(\d+)\.layer_norm\.", r"hubert.features.\1.norm."),
    (r"^semantic_model\.feature_extractor\.conv_layers\.", r"hubert.features."),
    (r"^semantic_model\.feature_projection\.layer_norm\.", r"hubert.projection_norm."),
    (r"^semantic_model\.feature_projection\.projection\.", r"hubert.projection."),
    (r"^semantic_model\.encoder\.layer_norm\.", r"hubert.norm."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.layer_norm\.", r"hubert.layers.\1.attention_norm."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.final_layer_norm\.", r"hubert.layers.\1.mlp_norm."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.feed_forward\.intermediate_dense\.", r"hubert.layers.\1.widen."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.feed_forward\.output_dense\.", r"hubert.layers.\1.narrow."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.attention\.q_proj\.", r"hubert.layers.\1.attention.queries."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.attention\.k_proj\.", r"hubert.layers.\1.attention.keys."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.attention\.v_proj\.", r"hubert.layers.\1.attention.values."),
    (r"^semantic_model\.encoder\.layers\.(\d+)\.attention\.out_proj\.", r"hubert.layers.\1.attention.output."),
    (r"^encoder_semantic\.conv\.", r"semantic.input."),
    (r"^encoder_semantic\.conv_blocks\.(\d+)\.res_units\.(\d+)\.conv1\.", r"semantic.blocks.\1.units.\2.first."),
    (r"^encoder_semantic\.conv_blocks\.(\d+)\.res_units\.(\d+)\.conv2\.", r"semantic.blocks.\1.units.\2.second."),
    (r"^encoder_semantic\.conv_blocks\.(\d+)\.conv\.", r"semantic.blocks.\1.conv."),
    (r"^fc\.", r"joint."),
    (r"^quantizer\.quantizers\.(\d+)\.project_in\.", r"quantizers.\1.input."),
    (r"^quantizer\.quantizers\.(\d+)\.project_out\.", r"quantizers.\1.output."),
    (r"^quantizer\.quantizers\.(\d+)\.codebook\.embed$", r"quantizers.\1.vectors.weight"),
    *_ACOUSTIC,
    (r"^acoustic_encoder\.", r"acoustic."),
)
_DECODER: Names = (
    (r"^fc2\.", r"joint."),
    (r"^quantizer\.quantizers\.(\d+)\.project_out\.", r"codebooks.\1.output."),
    (r"^quantizer\.quantizers\.(\d+)\.codebook\.embed$", r"codebooks.\1.vectors.weight"),
    *_ACOUSTIC,
    (r"^acoustic_decoder\.", r""),
)
_OF_ENCODER = ("acoustic_encoder.", "encoder_semantic.", "semantic_model.", "fc.", "quantizer.")
_OF_DECODER = ("acoustic_decoder.", "fc2.", "quantizer.")


@dataclass(frozen=True)
class Codec:
    """A loaded codec. The modules of its handles are a CodecEncoder and a CodecDecoder."""

    config: CodecConfig
    encoder: ModelHandle
    decoder: ModelHandle


def load_codec(folder: Path, loader: Loader) -> Codec:
    """The codec in `folder` (a checkpoint's `audio_tokenizer`), as the components ENCODER and DECODER.

    Raises as `load_modules`.
    """
    config, encoder, decoder = load_modules(folder)
    handle = loader.handle(DECODER, decoder)
    for embedding in decoder.embeddings():
        handle.mark(embedding, "gather")
    return Codec(config, loader.handle(ENCODER, encoder), handle)


def load_modules(folder: Path) -> tuple[CodecConfig, CodecEncoder, CodecDecoder]:
    """The same as modules on the CPU, float32, for inference only. What is stored as float32 is mapped, not copied.

    Raises ModelNotFound if there is no codec, ModelFileError if one of its files is not what it should be.
    """
    path, index = folder / WEIGHTS, folder / INDEX
    whole = path.is_file()
    if not whole and not index.is_file():
        raise ModelNotFound(f"{path}: there is no such file; download the model's {folder.name} folder again")
    config = read_codec_config(folder)
    with torch.device("meta"):
        encoder, decoder = CodecEncoder(config), CodecDecoder(config)
    with opened_safetensors(path) if whole else opened_shards(index) as file:
        reader = _Reader(path if whole else index, file, config)
        reader.fill(decoder, _DECODER, _OF_DECODER)
        reader.fill(encoder, _ENCODER, _OF_ENCODER)
        reader.finish()
    return config, encoder, decoder


class _Reader:
    """The tensors of one file, or of an index's, each given to whichever module asks for its name."""

    def __init__(self, path: Path, file: Any, config: CodecConfig) -> None:
        self.path = path
        self._file = file
        self._config = config
        self._left = {name for name in file.keys() if not re.fullmatch(_UNUSED, name)}  # noqa: SIM118

    def fill(self, module: nn.Module, names: Names, prefixes: tuple[str, ...]) -> None:
        """Give `module`, built on the meta device, the weights that begin with one of `prefixes`."""
        wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        if isinstance(module, CodecEncoder):
            shape = wanted.pop("hubert.positions.conv.weight")
            wanted |= {_SCALE: (1, 1, shape[2]), _DIRECTION: shape}
        own = [name for name in self._file.keys() if name.startswith(prefixes)]  # noqa: SIM118
        stored = renamed(own, lambda name: _ours(name, names, wanted), self.path)
        missing = wanted.keys() - stored.keys()
        if missing:
            raise ModelFileError(
                f"{self.path}: {len(missing)} weights are missing: {listed(missing)}; download the file again"
            )
        found = {target: self._tensor(name, wanted[target]) for target, name in stored.items()}
        if isinstance(module, CodecEncoder):
            found["hubert.positions.conv.weight"] = _joined(found.pop(_DIRECTION), found.pop(_SCALE))
        module.load_state_dict(found, strict=True, assign=True)
        module.requires_grad_(False).eval()

    def finish(self) -> None:
        """Refuse what nobody asked for, but for quantizers that encoding doesn't fill."""
        if self._left:
            raise ModelFileError(f"{self.path}: unexpected weights: {listed(self._left)}; it is another model's")

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self._left.discard(name)
        stored = tuple(self._file.get_slice(name).get_shape())
        if stored != shape:
            raise ModelFileError(
                f"{self.path}: the weight {name!r} is {list(stored)}; by its config.json it is {list(shape)}. The two "
                "files belong to different models"
            )
        tensor: Tensor = self._file.get_tensor(name)
        if not tensor.is_floating_point():
            raise ModelFileError(f"{self.path}: the weight {name!r} is {tensor.dtype}; it must be floating-point")
        return converted(tensor, torch.float32)


def _joined(direction: Tensor, scale: Tensor) -> Tensor:
    """A weight whose norm over all but the last axis is `scale`."""
    with torch.inference_mode(False), torch.no_grad():
        weight = direction * (scale / torch.norm_except_dim(direction, 2, 2))
    give_back_pages([direction])
    return weight


def _ours(name: str, names: Names, wanted: Container[str]) -> str | None:
    for pattern, replacement in names:
        name = re.sub(pattern, replacement, name)
    return name if name in wanted else None
