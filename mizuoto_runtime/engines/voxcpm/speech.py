"""A text's latents, try after try, in steps that can be run again if memory runs out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from ...nn.finite import check_finite
from .config import VoxCpmConfig
from .estimates import model_bytes
from .generate import Progress, Sampling, Writer
from .network import VoxCpm
from .prompt import Prompt

STEP_PATCHES = 8
"""Patches between two points to go back to."""
MORE_PATCHES = 10
"""Of the most patches, beside those for each token."""
TOKEN_SECONDS = 0.25
"""About how long a token is spoken, for the progress bar."""

__all__ = ["Latents", "Retries", "Sampling", "write_latents"]


@dataclass(frozen=True, kw_only=True)
class Retries:
    """When speech is made again. tries: so many at most. patches_a_token: from so many on it is too long.

    most_patches: of a try; fewer if the text is short.
    """

    tries: int
    patches_a_token: float
    most_patches: int

    def most(self, tokens: int) -> int:
        """Patches of a try for a text of so many tokens."""
        return min(int(tokens * self.patches_a_token + MORE_PATCHES), self.most_patches)


@dataclass(frozen=True)
class Latents:
    """Speech before its decoding. context, patches: float32 (patches, patch, latent) on the CPU.

    context: what is decoded before the patches. cut_patches: how much is cut off the sound's beginning. rate_hz: the
    sound's, by which models of other generations are told apart.
    """

    patches: Tensor
    context: Tensor
    cut_patches: int
    rate_hz: int

    @property
    def frames(self) -> Tensor:
        """(frames, latent) to decode."""
        return torch.cat((self.context, self.patches)).flatten(0, 1)

    def check(self, config: VoxCpmConfig) -> None:
        """InputError if a model with this configuration can't decode them."""
        if tuple(self.patches.shape[1:]) != (config.patch, config.latent):
            raise InputError(
                f"the latents have patches of {tuple(self.patches.shape[1:])}, this model's are "
                f"{(config.patch, config.latent)}; connect one model to both nodes"
            )
        if self.rate_hz != config.vae.output_rate_hz:
            raise InputError(
                f"the latents are of sound at {self.rate_hz:,} Hz, this model's at {config.vae.output_rate_hz:,} Hz; "
                "connect one model to both nodes"
            )


def write_latents(
    ctx: PhaseContext, handle: ModelHandle, config: VoxCpmConfig, prompt: Prompt, how: Sampling, retries: Retries
) -> Latents:
    """The latents of the whole text: of the first try that isn't too long, or the last."""
    most = _most(ctx, config, prompt, retries)
    context = prompt.context(config)
    counted = 0 if config.second else len(context)
    writing = _Writing(ctx, handle, config, prompt, how, most)
    for attempt in range(1, retries.tries + 1):
        patches = writing.write()
        if len(patches) + counted < prompt.spoken * retries.patches_a_token:
            break
        if attempt < retries.tries:
            ctx.applied["retried"] = attempt
        elif retries.tries > 1:
            ctx.warn(f"the speech was too long for its text {attempt} times; try another seed, or a clearer text")
    if not writing.ended:
        ctx.warn(_unended(config, prompt, retries, len(patches)))
    ctx.applied["patches"] = len(patches)
    return Latents(patches, context, _cut(config, context), config.vae.output_rate_hz)


def _cut(config: VoxCpmConfig, context: Tensor) -> int:
    """The first architecture always cuts two patches after a prompt, though it be shorter."""
    if config.second or not len(context):
        return len(context)
    return config.context_patches


def _most(ctx: PhaseContext, config: VoxCpmConfig, prompt: Prompt, retries: Retries) -> int:
    """How many patches may be made. InputError if there is no room for any."""
    room = config.max_positions - prompt.positions
    if room < 1:
        raise InputError(
            f"the prompt has {prompt.positions:,} positions, the model takes {config.max_positions:,}: "
            f"{len(prompt.ids):,} of text, the rest of recordings; shorten these"
        )
    wanted = retries.most(prompt.spoken)
    if wanted > room:
        ctx.warn(f"the model has room for {room:,} patches after this prompt; the speech may be cut off there")
    return min(wanted, room)


def _unended(config: VoxCpmConfig, prompt: Prompt, retries: Retries, patches: int) -> str:
    seconds = patches * config.patch * config.vae.output_hop / config.vae.output_rate_hz
    if patches < retries.most(prompt.spoken):
        return (
            f"the speech was cut off after {patches} patches ({seconds:.1f} seconds), where the model's room ends; "
            "shorten the text or the recordings"
        )
    if patches < retries.most_patches:
        return (
            f"the model found no end: it was stopped after {patches} patches ({seconds:.1f} seconds), more than "
            f"{prompt.spoken} tokens of text can take; try another seed, or a clearer text"
        )
    return f"the speech was cut off after {patches} patches ({seconds:.1f} seconds) by max_len; raise it"


class _Writing:
    """Tries at the same prompt, all from the request's generator. The prompt is read once."""

    def __init__(
        self, ctx: PhaseContext, handle: ModelHandle, config: VoxCpmConfig, prompt: Prompt, how: Sampling, most: int
    ) -> None:
        self._ctx, self._handle, self._config = ctx, handle, config
        self._prompt, self._how, self._most = prompt, how, most
        rate = config.vae.output_rate_hz / (config.patch * config.vae.output_hop)
        self._expected = max(1, min(most, round(prompt.spoken * TOKEN_SECONDS * rate)))
        self._start: tuple[Writer, Progress, int] | None = None
        self.ended = False

    def write(self) -> Tensor:
        """A try: float32 (patches, patch, latent) on the CPU."""
        writer = self._at_start()
        while not writer.finished:
            self._extend(writer)
        self.ended = writer.state.done
        patches = writer.latents()
        self._ctx.progress(len(patches), len(patches))
        return patches

    def _at_start(self) -> Writer:
        """The writer that has read the prompt, and nothing else."""
        if self._start is None:
            writer = self._ctx.run("prompt", [self._handle], self._begin, self._memory_bytes(0))
            self._start = writer, writer.state.copy(), writer.positions
        writer, state, positions = self._start
        writer.go_back(state, positions)
        return writer

    def _begin(self) -> Writer:
        module = self._handle.module
        assert isinstance(module, VoxCpm)
        device = torch.device(self._ctx.device)
        return Writer(
            module, self._prompt, self._how, self._most, self._ctx.rng, device, self._ctx.kv_cache, self._ctx.check
        )

    def _extend(self, writer: Writer) -> None:
        """Some patches, begun each time from the state that is there now."""
        before, positions = writer.state.copy(), writer.positions
        wanted = len(before.patches) + STEP_PATCHES

        def step() -> None:
            writer.go_back(before, positions)
            while len(writer.state.patches) < wanted and not writer.finished:
                self._tell(len(writer.state.patches))
                writer.patch()

        self._ctx.run("generate", [self._handle], step, self._memory_bytes(writer.held_bytes))
        check_finite(writer.state.before, "the values of a patch")

    def _tell(self, patches: int) -> None:
        self._ctx.progress(patches, max(self._expected, patches + 1))

    def _memory_bytes(self, held_bytes: int) -> int:
        module = self._handle.module
        assert isinstance(module, VoxCpm)
        device, kind = torch.device(self._ctx.device), self._ctx.kv_cache
        needed = model_bytes(self._config, self._prompt.positions, self._most, kind, module.dtype, device)
        return max(0, needed - held_bytes)
