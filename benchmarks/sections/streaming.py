"""All weights streamed, against the plain model and a raw copy of the same bytes, and against other offloaders.

Every offloader makes the same outputs step by step as a plain model that runs beside it; a step of the one, a step of
the other and a raw copy of the bytes that the runtime streams in a step take turns.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from mizuoto_runtime.types import Kind

from ..figures import Figure
from ..models import DIT_BLOCKS, HEADS, LATENT, LM_LAYERS, MAX_LENGTH, WIDTH, DecoderLm, Dit, parameters, randomised
from ..rig import Rig, component
from ..timing import lap, median, median_of
from .offloaders import OTHERS, Offloading, Unavailable
from .options import Options

PROMPT = 16
TOKENS = 32
FRAMES = 128
FLOW_STEPS = 8


class Job(Protocol):
    """A model's work in steps. output: the last step's."""

    steps: int

    def step(self, model: nn.Module, number: int) -> None: ...

    @property
    def output(self) -> Tensor: ...


class Speaking:
    """Generates TOKENS symbols, always the likeliest, after a prompt."""

    steps = TOKENS

    def __init__(self, layers: int) -> None:
        self.tokens = torch.arange(PROMPT)
        shape = (HEADS, MAX_LENGTH, WIDTH // HEADS)
        self.caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(layers)]
        self.output = torch.empty(0)

    def step(self, model: nn.Module, number: int) -> None:
        start = 0 if number == 0 else len(self.tokens) - 1
        self.output = model(self.tokens[start:], self.caches, start)
        self.tokens = torch.cat([self.tokens, self.output.argmax()[None]])


class Flowing:
    """FLOW_STEPS Euler steps from noise."""

    steps = FLOW_STEPS

    def __init__(self) -> None:
        self.output = torch.randn(FRAMES, LATENT, generator=torch.Generator().manual_seed(3))

    def step(self, model: nn.Module, number: int) -> None:
        self.output = self.output + model(self.output, torch.tensor([number / FLOW_STEPS])) / FLOW_STEPS


@dataclass
class Case:
    """A model, how it runs, and its work."""

    name: str
    kind: Kind
    model: nn.Module
    job: Callable[[], Job]


def cases(options: Options) -> Iterator[Case]:
    layers, blocks = options.layers(LM_LAYERS), options.layers(DIT_BLOCKS)
    yield Case("LM", "sequence", randomised(DecoderLm(layers)), lambda: Speaking(layers))
    yield Case("DiT", "oneshot", randomised(Dit(blocks)), Flowing)


@torch.no_grad()
def section(options: Options) -> Iterator[Figure]:
    for case in cases(options):
        rounds = options.count(3, 1)
        size = f"{parameters(case.model) / 1e6:.0f}M parameters, float32"
        yield from ours(case, rounds, size)
        for name, offload in OTHERS.items():
            yield from other(case, rounds, name, offload)


def ours(case: Case, rounds: int, size: str) -> Iterator[Figure]:
    handle = component(copy.deepcopy(case.model), case.kind)
    rig = Rig(handle.size_bytes, mode="none")
    with rig.context().use([handle], 0):
        assert handle.resident == ()
        sizes = [unit.size_bytes for unit in handle.costs()]
        before = handle.streamed_bytes
        seconds = turns(case, handle.module, sizes, rounds)
        streamed_bytes = handle.streamed_bytes - before
    steps = case.job().steps
    yield Figure(
        name=f"{case.name}: all streamed / (plain + raw copy)", value=ratio(seconds), unit="x", at_most=1.05,
        budget_bytes=rig.size_bytes, peak_bytes=rig.peak_bytes, note=f"{size}, {timed(seconds)}",
    )  # fmt: skip
    yield Figure(
        name=f"{case.name}: bytes streamed / (steps x bytes not resident)",
        value=streamed_bytes / (sum(sizes) * steps * (rounds + 1)), unit="x", at_most=1.0, at_least=1.0,
    )  # fmt: skip


def other(
    case: Case, rounds: int, name: str, offload: Callable[[nn.Module], AbstractContextManager[Offloading]]
) -> Iterator[Figure]:
    """The same with another library; the raw copy is of the bytes that ours streams, however many it copies."""
    handle = component(copy.deepcopy(case.model), case.kind)
    sizes = [unit.size_bytes for unit in handle.costs()]
    try:
        with offload(handle.module) as offloading:
            seconds = turns(case, handle.module, sizes, rounds)
    except Unavailable as reason:
        print(f"  {case.name}: {name}: not measured: {reason}")
        return
    copied = offloading.copied_bytes / (sum(sizes) * case.job().steps * (rounds + 1))
    if copied < 1:
        print(f"  {case.name}: {name}: not measured: it copied only {copied:.2f} of the weights' bytes")
        return
    yield Figure(
        name=f"{case.name}: {name} / (plain + raw copy)", value=ratio(seconds), unit="x",
        note=f"{offloading.what}, {copied:.3f} times the bytes; {timed(seconds)}",
    )  # fmt: skip


def turns(case: Case, model: nn.Module, sizes: list[int], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step on the plain model, on `model`, and of raw copies of `sizes`; one round isn't measured."""
    seconds: dict[str, list[float]] = {"plain": [], "raw": [], "offloaded": []}
    raw = raw_copies(sizes)
    for number in range(rounds + 1):
        plain_job, job = case.job(), case.job()
        for step in range(job.steps):
            ways: list[tuple[str, Callable[[], object]]] = [
                ("plain", lambda job=plain_job, step=step: job.step(case.model, step)),
                ("raw", raw),
                ("offloaded", lambda job=job, step=step: job.step(model, step)),
            ]
            for name, way in ways[step % 3 :] + ways[: step % 3]:
                took = lap(way)
                if number:
                    seconds[name].append(took)
            assert torch.equal(plain_job.output, job.output), f"{case.name}: another output in step {step}"
    return seconds


def raw_copies(sizes: list[int]) -> Callable[[], None]:
    """Copies blocks of those sizes into one block, one after the other."""
    sources = [torch.ones(size_bytes, dtype=torch.uint8) for size_bytes in sizes]
    target = torch.ones(max(sizes), dtype=torch.uint8)

    def run() -> None:
        for source in sources:
            target[: source.numel()].copy_(source)

    return run


def ratio(seconds: dict[str, list[float]]) -> float:
    """The median over all steps of all rounds."""
    return median_of(seconds, lambda each: each["offloaded"] / (each["plain"] + each["raw"]))


def timed(seconds: dict[str, list[float]]) -> str:
    return "a step: " + ", ".join(f"{name} {1e3 * median(values):.1f} ms" for name, values in seconds.items())
