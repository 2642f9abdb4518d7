"""Names and shapes of the weights in the audio VAE's file, as upstream's classes have them."""

from __future__ import annotations

from collections.abc import Iterator

from .vae_config import VaeConfig
from .vae_encoder import MEAN_KERNEL
from .vae_layers import DILATIONS, KERNEL

Shapes = dict[str, tuple[int, ...]]
FIRST, MEAN = "encoder.block.0", "encoder.fc_mu"
INPUT, INPUT_POINTWISE = "decoder.model.0", "decoder.model.1"
BOUNDS = "decoder.sr_bin_boundaries"


def encoder_block(block: int) -> str:
    return f"encoder.block.{block + 1}.block"


def decoder_layer(config: VaeConfig, block: int) -> int:
    """The number of a block in upstream's list; the number of blocks gives the last activation's."""
    return block + (2 if config.depthwise else 1)


def decoder_block(config: VaeConfig, block: int) -> str:
    return f"decoder.model.{decoder_layer(config, block)}.block"


def output_names(config: VaeConfig) -> tuple[str, str]:
    """The last activation and convolution."""
    layer = decoder_layer(config, len(config.decoder_rates))
    return f"decoder.model.{layer}", f"decoder.model.{layer + 1}"


def condition(config: VaeConfig, block: int, kind: str) -> str:
    """kind: scale, bias or cond."""
    return f"decoder.sr_cond_model.{decoder_layer(config, block)}.{kind}_embed.weight"


def unit(block: str, first: int, number: int) -> str:
    """A residual unit of a block whose first unit has the number `first`."""
    return f"{block}.{first + number}.block"


def convolutions(config: VaeConfig) -> Shapes:
    """Names of convolutions → shapes of their weights."""
    return dict([*_encoder(config), *_decoder(config)])


def outputs(name: str, shape: tuple[int, ...], config: VaeConfig) -> int:
    """Channels of a convolution's bias. Transposed ones have them second."""
    transposed = {f"{decoder_block(config, block)}.1" for block in range(len(config.decoder_rates))}
    return shape[1] if name in transposed else shape[0]


def others(config: VaeConfig) -> Shapes:
    """Names of weights that belong to no convolution → their shapes."""
    shapes: Shapes = {}
    for block, width in enumerate(config.encoder_widths[:-1]):
        name = encoder_block(block)
        shapes |= _unit_alphas(name, 0, width) | {f"{name}.{len(DILATIONS)}.alpha": (1, width, 1)}
    widths = config.decoder_widths
    for block, width in enumerate(widths[:-1]):
        name = decoder_block(config, block)
        shapes |= {f"{name}.0.alpha": (1, width, 1)} | _unit_alphas(name, 2, widths[block + 1])
        if config.bounds_hz is not None:
            kinds = ("scale", "bias") if config.scaled else ("cond",)
            shapes |= {condition(config, block, kind): (len(config.bounds_hz) + 1, width) for kind in kinds}
    shapes[f"{output_names(config)[0]}.alpha"] = (1, widths[-1], 1)
    if config.bounds_hz is not None:
        shapes[BOUNDS] = (len(config.bounds_hz),)
    return shapes


def _encoder(config: VaeConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    widths = config.encoder_widths
    yield FIRST, (widths[0], 1, KERNEL)
    for block, rate in enumerate(config.encoder_rates):
        name = encoder_block(block)
        yield from _unit_convolutions(name, 0, widths[block], config)
        yield f"{name}.{len(DILATIONS) + 1}", (widths[block + 1], widths[block], 2 * rate)
    yield MEAN, (config.latent_dim, widths[-1], MEAN_KERNEL)


def _decoder(config: VaeConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    widths = config.decoder_widths
    if config.depthwise:
        yield INPUT, (config.latent_dim, 1, KERNEL)
        yield INPUT_POINTWISE, (widths[0], config.latent_dim, 1)
    else:
        yield INPUT, (widths[0], config.latent_dim, KERNEL)
    for block, rate in enumerate(config.decoder_rates):
        name = decoder_block(config, block)
        yield f"{name}.1", (widths[block], widths[block + 1], 2 * rate)
        yield from _unit_convolutions(name, 2, widths[block + 1], config)
    yield output_names(config)[1], (1, widths[-1], KERNEL)


def _unit_convolutions(block: str, first: int, width: int, config: VaeConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    for number in range(len(DILATIONS)):
        name = unit(block, first, number)
        yield f"{name}.1", (width, 1 if config.depthwise else width, KERNEL)
        yield f"{name}.3", (width, width, 1)


def _unit_alphas(block: str, first: int, width: int) -> Shapes:
    names = (unit(block, first, number) for number in range(len(DILATIONS)))
    return {f"{name}.{place}.alpha": (1, width, 1) for name in names for place in (0, 2)}
