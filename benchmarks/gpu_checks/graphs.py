"""CUDA graphs of a model whose weights stream: each replay copies the weights itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..figures import Figure
from ..models import Leaves, Scheduled, randomised
from ..rig import component
from ..timing import lap, median
from .locking import register, unregister
from .place import NotHere, Place

WIDTH = 1024
UNITS = 12
REPLAYS = 5


def section(place: Place) -> Iterator[Figure]:
    place.need_cuda("capturing a graph")
    yield from by_hand(place)
    yield from of_handle(place)


def model() -> nn.Module:
    return randomised(Scheduled([Leaves(WIDTH) for _ in range(UNITS)], range(UNITS)))


@torch.no_grad()
def by_hand(place: Place) -> Iterator[Figure]:
    """The floor: every leaf's weight copied from locked RAM by a node of the graph, without the runtime."""
    module = model().to(place.name)
    leaves = [part for part in module.modules() if isinstance(part, nn.Linear)]
    x, others = inputs(place)
    expected = [module(each).clone() for each in others]
    host = torch.stack([leaf.weight.detach().cpu() for leaf in leaves])
    slot = torch.empty(WIDTH, WIDTH, device=place.name)
    register(host)
    try:
        for leaf, weight in zip(leaves, host, strict=True):
            leaf.weight.data = slot
            leaf.register_forward_pre_hook(copies_into(slot, weight))
        graph, output = captured(place, module, x)
        yield agreement("by hand", graph, x, output, others, expected)
        yield replay_time(place, "by hand", graph, host.nbytes)
        del graph
    finally:
        place.wait()
        unregister(host)


def copies_into(slot: Tensor, weight: Tensor) -> Callable[[nn.Module, Any], None]:
    def hook(leaf: nn.Module, arguments: Any) -> None:
        slot.copy_(weight, non_blocking=True)

    return hook


@torch.no_grad()
def of_handle(place: Place) -> Iterator[Figure]:
    """The runtime's: a `sequence` handle of which every unit streams."""
    handle = component(model())
    x, others = inputs(place)
    rig = place.rig(handle.size_bytes, mode="none")
    with rig.context().use([handle], 0):
        if not handle.graphable:
            raise NotHere("the handle isn't graphable here: its streamed units aren't all in locked RAM")
        expected = [handle.module(each).clone() for each in others]
        graph, output = captured(place, handle.module, x, handle.drop_copies)
        yield agreement("handle", graph, x, output, others, expected, handle.replayed)
        yield replay_time(place, "handle", graph, sum(unit.size_bytes for unit in handle.costs()))
        del graph


def inputs(place: Place) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(5)
    others = [torch.randn(1, WIDTH, generator=generator).to(place.name) for _ in range(3)]
    return others[0].clone(), others


def captured(
    place: Place, module: nn.Module, x: Tensor, before: Callable[[], None] = lambda: None
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The graph of one call and its output. before: forgets copies, so that the graph holds every one of them."""
    stream = torch.cuda.Stream(place.name)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        module(x)
    torch.cuda.current_stream().wait_stream(stream)
    place.wait()
    graph = torch.cuda.CUDAGraph()
    before()
    with torch.cuda.graph(graph):
        output = module(x)
    return graph, output


def agreement(
    what: str,
    graph: torch.cuda.CUDAGraph,
    x: Tensor,
    output: Tensor,
    others: list[Tensor],
    expected: list[Tensor],
    after: Callable[[], None] = lambda: None,
) -> Figure:
    same = 0
    for each, wanted in zip(others, expected, strict=True):
        x.copy_(each)
        graph.replay()
        after()
        same += torch.equal(output, wanted)
    return Figure(name=f"{what}: replays equal to eager", value=same / len(others), unit="x", at_least=1.0)


def replay_time(place: Place, what: str, graph: torch.cuda.CUDAGraph, size_bytes: int) -> Figure:
    def run() -> None:
        graph.replay()
        place.wait()

    seconds = median([lap(run) for _ in range(REPLAYS)])
    return Figure(
        name=f"{what}: bytes copied by a replay", value=size_bytes / seconds / 1e9, unit="GB/s",
        note=f"{1e3 * seconds:.2f} ms for {size_bytes:,} bytes",
    )  # fmt: skip
