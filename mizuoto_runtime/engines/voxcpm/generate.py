"""The loop that writes patches: the local DiT makes one, the local encoder and both language models hear it.

The order of steps and of random draws is that of voxcpm 2.0.3 (`_inference` of both its models).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from ...lm.cache import CacheKind, KvCache, new_cache
from .config import VoxCpmConfig
from .network import Ropes, VoxCpm, new_positions
from .prompt import Prompt
from .sampler import PatchSampler, schedule

LAST = slice(-1, None)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How patches are made, under upstream's names. min_len: the stop counts after so many patches and one more."""

    cfg_value: float = 2.0
    inference_timesteps: int = 10
    min_len: int = 2


@dataclass
class Progress:
    """A sequence on its way. hidden, residual: (1, width) of both language models at the last position; before: the
    last patch, (patch, latent). Steps replace these, so a copy is a state to go back to, with the caches' lengths."""

    hidden: Tensor
    residual: Tensor
    before: Tensor
    patches: list[Tensor] = field(default_factory=list)
    done: bool = False

    def copy(self) -> Progress:
        return replace(self, patches=list(self.patches))


class Writer:
    """Writes a prompt's patches. Every draw is made from `rng`, on the CPU: one for each patch, as upstream does."""

    @torch.inference_mode()
    def __init__(
        self,
        model: VoxCpm,
        prompt: Prompt,
        how: Sampling,
        most: int,
        rng: Generator,
        device: torch.device,
        kv_cache: CacheKind = "dynamic",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.model, self.how, self.most, self.rng, self._check = model, how, most, rng, check
        self.config: VoxCpmConfig = model.config
        self._device = device
        self._ropes = Ropes(self.config, model.dtype, device)
        positions = prompt.positions + most
        self._caches: Sequence[KvCache] = [
            new_cache(kv_cache, layers, first_positions=positions)
            for layers in (self.config.lm.layers, self.config.residual.layers)
        ]
        plan = schedule(how.inference_timesteps, model.dtype, device)
        self._sampler = PatchSampler(
            model.feat_decoder, plan, how.cfg_value, self._ropes.dit, delta_time=self.config.delta_time
        )
        self.state = self._read(prompt)

    @property
    def positions(self) -> int:
        """That both language models have seen."""
        return min(cache.length_positions for cache in self._caches)

    @property
    def held_bytes(self) -> int:
        """Of keys and values."""
        return sum(cache.held_bytes for cache in self._caches)

    @property
    def finished(self) -> bool:
        """Whether no patch follows."""
        return self.state.done or len(self.state.patches) >= self.most

    def go_back(self, state: Progress, positions: int) -> None:
        """To what was there when the caches held so many positions."""
        for cache in self._caches:
            cache.crop(positions)
        self.state = state.copy()

    @torch.inference_mode()
    def patch(self) -> None:
        """Write one patch."""
        state, model = self.state, self.model
        if state.patches:
            state.hidden, state.residual = self._hear(state.before)
        noise = torch.randn(1, self.config.latent, self.config.patch, generator=self.rng)
        made = self._sampler.sample(
            noise[0].T.to(device=self._device, dtype=model.dtype),
            model.condition(state.hidden, state.residual),
            state.before,
            self._check,
        )
        state.before = made
        index = len(state.patches)
        state.patches.append(made)
        state.done = index > self.how.min_len and model.stops(state.hidden)

    def latents(self) -> Tensor:
        """float32 (patches, patch, latent) on the CPU."""
        return torch.stack(self.state.patches).float().cpu()

    def _read(self, prompt: Prompt) -> Progress:
        """Both language models over the whole prompt."""
        model, config = self.model, self.config
        embedded, audio, heard = [], [], []
        for part in prompt.parts():
            if isinstance(part, Tensor):
                patches = part.to(device=self._device, dtype=model.dtype)
                rows = model.audio(patches, self._ropes.encoder, self._check)
                audio.append(rows)
            else:
                rows = model.text(part, self._device)
                audio.append(torch.zeros_like(rows))
            heard += [isinstance(part, Tensor)] * len(rows)
            embedded.append(rows)
        self._check()
        hidden = new_positions(model.base_lm, torch.cat(embedded), self._ropes.lm, self._caches[0])
        if any(heard):
            at = torch.tensor(heard, device=self._device).nonzero()[:, 0]
            hidden = hidden.index_copy(0, at, model.fsq_layer(hidden[at]))
        self._check()
        entering = model.residual_input(hidden, torch.cat(audio))
        residual = new_positions(model.residual_lm, entering, self._ropes.residual, self._caches[1], LAST)
        shape = (config.patch, config.latent)
        last = prompt.continued[-1] if prompt.continued is not None else torch.zeros(shape)
        return Progress(hidden[-1:], residual, last.to(device=self._device, dtype=model.dtype))

    def _hear(self, patch: Tensor) -> tuple[Tensor, Tensor]:
        """Both language models over the patch that was made: their hidden states, (1, width)."""
        model = self.model
        audio = model.audio(patch[None], self._ropes.encoder, self._check)
        hidden = model.fsq_layer(new_positions(model.base_lm, audio, self._ropes.lm, self._caches[0]))
        entering = model.residual_input(hidden, audio)
        return hidden, new_positions(model.residual_lm, entering, self._ropes.residual, self._caches[1])
