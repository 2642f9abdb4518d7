"""Loads the codec and the speaker encoder from their checkpoints, mapped and strict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from ...weights.checkpoint import Checkpoint, Rename
from ...weights.entries import Entry, read_json
from .codec_config import CodecConfig, SpeakerConfig, parse_speaker_config, read_codec_config
from .codec_decoder import CodecDecoder
from .codec_encoder import JOINED, CodecEncoder
from .codec_vocoder import JOINED_FROM
from .speaker_encoder import SpeakerEncoder

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
