"""The test engine at work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from mizuoto_runtime.library import ModelFiles
from mizuoto_runtime.lm.cache import CacheKind, KvCache, new_cache, peak_bytes, position_bytes
from mizuoto_runtime.loader import Loader
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.types import Audio

from .codec import RATE_HZ, SAMPLES_PER_FRAME, WIDTH, Decoder
from .lm import LmConfig, Predictor, Talker

CONFIGS = {"tied": LmConfig(), "untied-bf16": LmConfig(tied=False, dtype=torch.bfloat16, inner=1024)}
TALKER_GAIN, CODEC_GAIN = 2.0, 0.7


@dataclass(frozen=True)
class LmCodecModel:
    config: LmConfig
    talker: ModelHandle
    codec: ModelHandle


def load(files: ModelFiles, loader: Loader) -> LmCodecModel:
    """The weights are made up, the same ones each time."""
    config = CONFIGS[files.ref.model]
    rng = generator(11)
    with torch.device("meta"):
        talker, codec = Talker(config), Decoder(config.codebooks, config.codes)
    _fill(talker, TALKER_GAIN, rng, config.dtype)
    talker.tie()
    _fill(codec, CODEC_GAIN, rng, torch.float32)
    model = LmCodecModel(config, loader.handle("talker", talker), loader.handle("codec", codec))
    model.talker.mark(talker.conditioning, "cold")
    model.talker.mark(talker.predictor, "hot")
    return model


def _fill(module: nn.Module, gain: float, rng: Generator, dtype: torch.dtype) -> None:
    weights = {}
    for name, tensor in module.state_dict().items():
        scale = gain / tensor[0].numel() ** 0.5 if tensor.dim() > 1 else 0.1
        made = scale * torch.randn(tensor.shape, generator=rng)
        weights[name] = (made + name.endswith("norm.weight")).to(dtype)
    module.load_state_dict(weights, assign=True)


def prompt(ctx: PhaseContext, model: LmCodecModel, *, text: str) -> Tensor:
    """(1, 1 + bytes, width) on the CPU."""
    data = torch.tensor([list(text.encode())])

    def compute() -> Tensor:
        return module_of(model).condition(data.to(ctx.device)).cpu()

    width_bytes = model.config.dtype.itemsize * model.config.width
    return ctx.run("condition", [model.talker], compute, 16 * width_bytes * data.shape[1])


def module_of(model: LmCodecModel) -> Talker:
    module = model.talker.module
    assert isinstance(module, Talker)
    return module


@dataclass
class Generation:
    """A sequence on its way. pending: (1, new positions, width) that the talker hasn't seen yet."""

    cache: KvCache
    pending: Tensor
    frames: list[list[int]] = field(default_factory=list)
    ended: bool = False


def talk(
    ctx: PhaseContext,
    model: LmCodecModel,
    *,
    prompt: Tensor,
    max_frames: int,
    chunk_frames: int,
    temperature: float,
    kv_cache: CacheKind,
) -> Tensor:
    """(codebooks, frames) on the CPU."""
    fine = generator(int(torch.randint(1 << 30, (), generator=ctx.rng)))
    state = Generation(new_cache(kv_cache, model.config.layers), prompt)
    sampler = _Sampler(module_of(model), kv_cache, temperature, ctx.rng, fine)
    memory = _talk_bytes(model.config, prompt.shape[1] + max_frames, kv_cache)
    if not chunk_frames:
        with ctx.use([model.talker], memory):
            _extend(ctx, state, sampler, max_frames, max_frames)
    while not state.ended and len(state.frames) < max_frames:
        wanted = min(len(state.frames) + chunk_frames, max_frames)
        step = _retriable(state, lambda wanted=wanted: _extend(ctx, state, sampler, wanted, max_frames))
        ctx.run("generate", [model.talker], step, memory, generators=(fine,))
    return torch.tensor(state.frames).T.reshape(model.config.codebooks, -1)


def _retriable(state: Generation, step: Callable[[], None]) -> Callable[[], None]:
    """`step`, begun each time from the state that is there now."""
    length, pending, frames = state.cache.length_positions, state.pending, list(state.frames)

    def run() -> None:
        state.cache.crop(length)
        state.pending, state.frames, state.ended = pending, list(frames), False
        step()

    return run


def _extend(ctx: PhaseContext, state: Generation, sampler: _Sampler, wanted: int, total: int) -> None:
    while not state.ended and len(state.frames) < wanted:
        ctx.progress(len(state.frames), total)
        frame = sampler.frame(state)
        if frame is None:
            state.ended = True
        else:
            state.frames.append(frame)


class _Sampler:
    """rng: for the first codes; fine: for the others."""

    def __init__(self, model: Talker, kind: CacheKind, temperature: float, rng: Generator, fine: Generator) -> None:
        self._model = model
        self._predictor = Predictor(model, kind)
        self._temperature = temperature
        self._rng = rng
        self._fine = fine

    def frame(self, state: Generation) -> list[int] | None:
        """The next frame's codes, None at the end; never before the first frame."""
        model = self._model
        hidden, logits = model.step(state.pending, state.cache)
        if not state.frames:
            logits[model.config.end] = -torch.inf
        first = self._sampled(logits, self._rng)
        if first == model.config.end:
            return None
        frame = [first]
        x = torch.cat((hidden, model.codes(torch.tensor([[first]], device=hidden.device))), dim=1)
        for codebook in range(model.config.codebooks - 1):
            frame.append(self._sampled(self._predictor.logits(x, codebook), self._fine))
            x = model.further[codebook](torch.tensor([[frame[-1]]], device=hidden.device))
        state.pending = model.embed(frame)
        return frame

    def _sampled(self, logits: Tensor, rng: Generator) -> int:
        logits = logits.cpu()
        if not self._temperature:
            return int(logits.argmax())
        return int(torch.multinomial((logits / self._temperature).softmax(0), 1, generator=rng))


def _talk_bytes(config: LmConfig, positions: int, kind: CacheKind) -> int:
    each = position_bytes(config.kv_heads, config.head_dim, config.dtype)
    return peak_bytes(each, config.layers + config.predictor_layers, positions, kind, 1) + (1 << 20)


def decode(ctx: PhaseContext, model: LmCodecModel, *, codes: Tensor) -> Audio:
    """(1, frames · SAMPLES_PER_FRAME) samples at RATE_HZ."""

    def compute() -> Tensor:
        samples: Tensor = model.codec.module(codes.to(ctx.device))
        return samples.cpu()

    memory = 4 * WIDTH * SAMPLES_PER_FRAME * codes.shape[1] * torch.float32.itemsize
    return Audio(ctx.run("codec", [model.codec], compute, memory), RATE_HZ)
