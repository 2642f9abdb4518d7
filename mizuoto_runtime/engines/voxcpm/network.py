"""VoxCPM's modules: language models, local encoder, scalar quantization, local DiT.

Arithmetic: VoxCPM (Zhou et al., https://arxiv.org/abs/2509.24650); MiniCPM4 (https://arxiv.org/abs/2506.07900) for all
layers; finite scalar quantization (Mentzer et al., https://arxiv.org/abs/2309.15505). Upstream: voxcpm/modules and
voxcpm/model of voxcpm 2.0.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...lm.cache import KvCache
from ...lm.decoder import Decoder, DecoderConfig, NoCache
from ...lm.positions import Masks, Rope, RopeTable
from ...nn.finite import check_finite
from ...nn.linear import Linear
from .config import VoxCpmConfig

NONE = NoCache()
PATCHES_AT_ONCE = 64
"""Of a recording, in the local encoder."""
LONGEST_PERIOD = 10_000.0
TIME_SCALE = 1000.0


class LanguageModel(Decoder):
    """The layers that see all positions, with the text's embedding beside them as in the checkpoint."""

    def __init__(self, config: VoxCpmConfig) -> None:
        super().__init__(config.lm)
        self.embed_tokens = nn.Embedding(config.vocab, config.lm.width)


class LocalEncoder(nn.Module):
    """A patch of latents → one vector."""

    def __init__(self, config: VoxCpmConfig) -> None:
        super().__init__()
        width = config.encoder.width
        self.special_token = nn.Parameter(torch.empty(1, 1, 1, width))
        self.in_proj = Linear(config.latent, width)
        self.encoder = Decoder(config.encoder)

    def forward(self, patches: Tensor, rope: Rope) -> Tensor:
        """(patches, patch, latent) → (patches, width)."""
        count, length, latent = patches.shape
        projected = self.in_proj(patches.reshape(-1, latent)).view(count, length, -1)
        x = torch.cat((self.special_token[0].expand(count, -1, -1), projected), dim=1)
        encoded: Tensor = self.encoder(x, rope, Masks(length + 1, length + 1, x.device), NONE, slice(0, 1))
        return encoded[:, 0]


class Quantizer(nn.Module):
    """Rounds to so many steps in each direction, after tanh."""

    def __init__(self, config: VoxCpmConfig) -> None:
        super().__init__()
        self.scale = config.quantizer_scale
        self.in_proj = Linear(config.lm.width, config.quantizer_width)
        self.out_proj = Linear(config.quantizer_width, config.lm.width)

    def forward(self, x: Tensor) -> Tensor:
        """(positions, width) → the same."""
        steps = torch.round(torch.tanh(self.in_proj(x)) * self.scale) / self.scale
        quantized: Tensor = self.out_proj(steps)
        return quantized


class TimeMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_1 = Linear(width, width)
        self.linear_2 = Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.linear_2(functional.silu(self.linear_1(x)))
        return embedded


class LocalDit(nn.Module):
    """A noisy patch, its time, its condition and the patch before → the patch's velocity."""

    def __init__(self, config: VoxCpmConfig) -> None:
        super().__init__()
        width = config.dit.width
        self.in_proj = Linear(config.latent, width)
        self.cond_proj = Linear(config.latent, width)
        self.out_proj = Linear(width, config.latent)
        self.time_mlp = TimeMlp(width)
        self.delta_time_mlp = TimeMlp(width)
        self.decoder = Decoder(config.dit)
        self.patch, self.second = config.patch, config.second

    def times(self, times: Tensor, deltas: Tensor) -> Tensor:
        """Times and lengths of steps, (steps) in the model's dtype → (steps, width)."""
        width = self.decoder.config.width
        embedded: Tensor = self.time_mlp(_waves(times, width)) + self.delta_time_mlp(_waves(deltas, width))
        return embedded

    def begin(self, condition: Tensor, before: Tensor) -> Tensor:
        """(1, condition's width) and the patch before, (patch, latent) → (2, positions, width) for `forward`.

        The second row has no condition. Times and the patch itself are filled in later.
        """
        width = self.decoder.config.width
        tokens = condition.view(-1, width)
        first = len(tokens) + 1 if self.second else 1
        x = condition.new_zeros(2, first + 2 * self.patch, width)
        x[0, : len(tokens)] = tokens
        x[:, first : first + self.patch] = self.cond_proj(before)
        return x

    def forward(self, begun: Tensor, patch: Tensor, time: Tensor, rope: Rope) -> Tensor:
        """begun: of `begin`; patch: (patch, latent); time: (width) of `times` → (2, patch, latent)."""
        at = begun.shape[1] - 2 * self.patch - 1
        x = begun.clone()
        x[:, at] += time
        x[:, -self.patch :] = self.in_proj(patch)
        wanted = slice(-self.patch, None)
        hidden = self.decoder(x, rope, Masks(x.shape[1], x.shape[1], x.device), NONE, wanted)
        velocities: Tensor = self.out_proj(hidden.flatten(0, 1))
        return velocities.view(2, self.patch, -1)


def _waves(values: Tensor, width: int) -> Tensor:
    """(n) → (n, width): sines, then cosines, computed in the dtype of `values`."""
    half = width // 2
    steps = torch.arange(half, dtype=values.dtype, device=values.device)
    frequencies = torch.exp(steps * -(math.log(LONGEST_PERIOD) / (half - 1)))
    angles = TIME_SCALE * values[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class VoxCpm(nn.Module):
    """Everything that runs once a step or more often, and the embedding of the text."""

    def __init__(self, config: VoxCpmConfig) -> None:
        super().__init__()
        self.config = config
        width = config.lm.width
        self.base_lm = LanguageModel(config)
        self.residual_lm = Decoder(config.residual)
        self.feat_encoder = LocalEncoder(config)
        self.feat_decoder = LocalDit(config)
        self.fsq_layer = Quantizer(config)
        self.enc_to_lm_proj = Linear(config.encoder.width, width)
        self.lm_to_dit_proj = Linear(width, config.dit.width)
        self.res_to_dit_proj = Linear(width, config.dit.width)
        self.fusion_concat_proj = Linear(2 * width, width) if config.second else None
        self.stop_proj = Linear(width, width)
        self.stop_head = nn.Linear(width, 2, bias=False)

    @property
    def dtype(self) -> torch.dtype:
        return self.stop_head.weight.dtype

    def many_rows(self) -> list[nn.Module]:
        """Parts whose linear layers get several rows a patch; in the encoder's last layer one position is wanted."""
        return [*self.feat_encoder.encoder.layers[:-1], self.feat_decoder.decoder]

    def text(self, ids: Sequence[int], device: torch.device) -> Tensor:
        """(ids) → (ids, width)."""
        chosen = torch.tensor(ids, dtype=torch.long, device=device)
        embedded: Tensor = self.base_lm.embed_tokens(chosen)
        return embedded if self.config.embedding_scale == 1 else embedded * self.config.embedding_scale

    def audio(self, patches: Tensor, rope: Rope, check: Callable[[], None]) -> Tensor:
        """(patches, patch, latent) → (patches, width)."""
        parts = []
        for start in range(0, len(patches), PATCHES_AT_ONCE):
            check()
            parts.append(self.enc_to_lm_proj(self.feat_encoder(patches[start : start + PATCHES_AT_ONCE], rope)))
        return torch.cat(parts)

    def residual_input(self, hidden: Tensor, audio: Tensor) -> Tensor:
        """(positions, width) of the language model and of the audio there, zeros for none → (positions, width)."""
        if self.fusion_concat_proj is None:
            return hidden + audio
        fused: Tensor = self.fusion_concat_proj(torch.cat((hidden, audio), dim=-1))
        return fused

    def condition(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """(1, width) of both language models → what the DiT is told, (1, its width, or twice that)."""
        first, second = self.lm_to_dit_proj(hidden), self.res_to_dit_proj(residual)
        return torch.cat((first, second), dim=-1) if self.config.second else first + second

    def stops(self, hidden: Tensor) -> bool:
        """Whether the patch that is made from (1, width) is the last. NotFinite if the weights give no numbers."""
        logits = self.stop_head(functional.silu(self.stop_proj(hidden)))[0].cpu()
        check_finite(logits, "the logits of the speech's end")
        return bool(logits.argmax() == 1)


class Ropes:
    """The rotations of a request; each decoder has its own. As upstream's, they are rounded to the model's dtype, but
    products are float32."""

    def __init__(self, config: VoxCpmConfig, dtype: torch.dtype, device: torch.device) -> None:
        def table(decoder: DecoderConfig) -> RopeTable:
            return RopeTable(decoder, dtype, device, wide=True)

        self.lm = table(config.lm)
        self.residual = table(config.residual) if config.residual_rope else None
        self.encoder = table(config.encoder).span(0, config.patch + 1)
        self.dit = table(config.dit).span(0, config.dit_positions)


def new_positions(
    decoder: Decoder, x: Tensor, table: RopeTable | None, cache: KvCache, kept: slice | None = None
) -> Tensor:
    """(positions, width) after those that the cache holds → their hidden states (kept positions, width)."""
    before, new = cache.length_positions, len(x)
    rope = None if table is None else table.span(before, before + new)
    hidden: Tensor = decoder(x[None], rope, Masks(new, before + new, x.device), cache, kept)
    return hidden[0]
