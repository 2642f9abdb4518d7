"""The test engine at work."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mizuoto_runtime.engines.voxcpm.vae_config import VaeConfig
from mizuoto_runtime.engines.voxcpm.vae_decoder import SMALL_TILE_FRAMES, VaeDecoder
from mizuoto_runtime.engines.voxcpm.vae_encoder import VaeEncoder
from mizuoto_runtime.engines.voxcpm.vae_estimates import decoder_bytes, encoder_bytes
from mizuoto_runtime.library import ModelFiles
from mizuoto_runtime.loader import Loader
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.types import Audio
from tests.engines.voxcpm.vae_models import SMALL, SMALL_FIRST, with_random_weights
from tests.golden.voxcpm.vae.signals import exact_sound

CONFIGS = {"first": SMALL_FIRST, "second": SMALL}


@dataclass(frozen=True)
class VaeModel:
    config: VaeConfig
    encoder: ModelHandle
    decoder: ModelHandle


def load(files: ModelFiles, loader: Loader) -> VaeModel:
    config = CONFIGS[files.ref.model]
    encoder, decoder = VaeEncoder(config), VaeDecoder(config)
    return VaeModel(
        config,
        loader.handle("encoder", with_random_weights(encoder)),
        loader.handle("decoder", with_random_weights(decoder)),
    )


def encode(ctx: PhaseContext, model: VaeModel, *, text: str) -> Tensor:
    module, sound = model.encoder.module, exact_sound(int(text))
    assert isinstance(module, VaeEncoder)
    return ctx.run(
        "encoder",
        [model.encoder],
        lambda: module.encode(sound.to(ctx.device), ctx.check).cpu(),
        encoder_bytes(model.config, len(sound), torch.device(ctx.device)),
    )


def decode(ctx: PhaseContext, model: VaeModel, *, latents: Tensor) -> Audio:
    module = model.decoder.module
    assert isinstance(module, VaeDecoder)
    samples = ctx.run(
        "decoder",
        [model.decoder],
        lambda: module.decode(latents.to(ctx.device), ctx.check).cpu(),
        decoder_bytes(model.config, len(latents), torch.device(ctx.device)),
        fallback=(
            "decoded in small tiles",
            lambda: module.decode(latents.to(ctx.device), ctx.check, tile_frames=SMALL_TILE_FRAMES).cpu(),
        ),
    )
    return Audio(samples[None], model.config.output_rate_hz)
