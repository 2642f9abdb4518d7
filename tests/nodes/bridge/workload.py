"""A model of ComfyUI's and two engines of this pack's kind in turns, on a device that holds any one but not all.

Bytes that come to the device are compared with an oracle's. It lets the same things go in the same order, but never
more than what the next step is short of. How much that is, is ComfyUI's to say: the step's weights and a tenth, and
what it leaves for inference.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import comfy.model_management as mm
import torch
from torch import Tensor

from benchmarks.timing import one_thread
from mizuoto_runtime.engines.registry import Engines
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.memory.group import WeightGroup
from mizuoto_runtime.memory.handle import ModelHandle
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from tests.engines.lmcodec import phases

from .rig import MB, UNIT_BYTES, Rig, bridge, fake_device, given
from .shared import Dynamic

MODELS = ("tied", "untied-bf16")
SMALL = dict(phases.CONFIGS)
LARGE = {
    "tied": replace(SMALL["tied"], width=512, heads=8, inner=1280),
    "untied-bf16": replace(SMALL["untied-bf16"], width=768, heads=12, inner=1792),
}
IMAGE_UNITS = {"small": 32, "large": 160}
"""Units of the model of ComfyUI's beside engines of either size."""
IMAGE = "image"
SHARE = 1.1  # ComfyUI asks for a tenth more than a model weighs
ENGINES = Engines({"lmcodec": "tests.engines.lmcodec"})
REQUEST = SpeakRequest(text="Hello.", seed=3, options={"max_frames": 2, "chunk_frames": 2})


@dataclass
class Moved:
    """Bytes that came to the device to stay, by whose they are. The runtime's are counted group by group."""

    image_bytes: int = 0
    speech_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.image_bytes + self.speech_bytes


@dataclass(frozen=True)
class Step:
    """What one phase, or ComfyUI's model, needs at once: sizes and what it holds in the end, slots too, by item."""

    size_bytes: Mapping[str, int]
    stays_bytes: Mapping[str, int]


@dataclass(frozen=True)
class Alone:
    """A prompt with the device to itself.

    warm_bytes: what it moves although everything is there, as where units of a partial handle take turns.
    cold_bytes: what it moves to an empty device.
    """

    output: Tensor
    steps: Sequence[Step]
    warm_bytes: int
    cold_bytes: int

    @property
    def brought_share(self) -> float:
        """How much is moved for a byte that is held and wasn't there; slots aren't moved."""
        held = {item: size_bytes for step in self.steps for item, size_bytes in step.stays_bytes.items()}
        return (self.cold_bytes - self.warm_bytes) / max(1, sum(held.values()))


@dataclass
class Oracle:
    """Moves as little as the rule allows. whole: speech gives way as a whole (Y3); order: items by their last use."""

    spare_bytes: int
    whole: bool = False
    present: dict[str, int] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    moved_bytes: float = 0.0

    def run(self, prompt: Alone, share: float) -> None:
        self.moved_bytes += prompt.warm_bytes
        for step in prompt.steps:
            self.moved_bytes += prompt.brought_share * self._step(step, share)

    def _step(self, step: Step, share: float) -> int:
        """Make room for the step by `share` times what is missing of it, then bring that; returns the bytes."""
        missing = sum(step.size_bytes.values()) - sum(self.present.get(item, 0) for item in step.size_bytes)
        short = missing * share - (self.spare_bytes - sum(self.present.values()))
        for item in self._victims(step):
            is_whole = self.whole and item != IMAGE and short > 0
            freed = self.present[item] if is_whole else min(self.present[item], max(0, math.ceil(short)))
            self.present[item] -= freed
            short -= freed
        brought = 0
        for item, stays_bytes in step.stays_bytes.items():
            brought += max(0, stays_bytes - self.present.get(item, 0))
            self.present[item] = stays_bytes
            self.order = [other for other in self.order if other != item] + [item]
        return brought

    def _victims(self, step: Step) -> list[str]:
        """Speech first, the least recently used before others."""
        others = [item for item in self.order if item not in step.size_bytes]
        return sorted(others, key=lambda item: item == IMAGE)


class Workload:
    """Runs prompts on a rig: an image's, or one of the models' of speech."""

    def __init__(self, rig: Rig, image: Any, moved: Moved) -> None:
        self.rig = rig
        self.image = image
        self.moved = moved
        settings = resolve({"compute.simulate_vram_mb": str(1 + rig.total_bytes // MB)}, {})
        self.session = Session(settings, ModelLibrary([]), bridge.ComfyHost(), ENGINES)
        rig.adopt(self.session.manager)
        self.session.manager.before_load = self._note
        self.noted: list[list[ModelHandle]] = []
        self.streamed_mb = 0.0

    def _note(self, handles: Sequence[ModelHandle], memory_bytes: int) -> None:
        self.noted.append(list(handles))

    def files(self, model: str) -> ModelFiles:
        return self.session.find("lmcodec", model)

    def run(self, prompt: str) -> Tensor:
        self.noted.clear()
        with torch.inference_mode():
            output = self._image() if prompt == IMAGE else self._speech(prompt)
        self.rig.check_books()
        assert self.rig.free_bytes >= 0
        return output

    def _image(self) -> Tensor:
        before = self.image.loaded_size()
        mm.load_models_gpu([self.image])
        self.moved.image_bytes += max(0, self.image.loaded_size() - before)
        output: Tensor = self.image.model(given())
        return output

    def _speech(self, model: str) -> Tensor:
        output = self.session.speak(self.files(model), REQUEST)
        assert "oom_retries" not in str(output.meta), "nothing ran out"
        self.streamed_mb += output.meta["memory"]["streamed_mb"]  # type: ignore[index]
        return output.audio.samples

    def alone(self, prompt: str) -> Alone:
        """Run a prompt thrice: to teach the runtime how often units run, on an empty device, and again."""
        outputs, moved = [], []
        for empty in (True, True, False):
            if empty:
                mm.unload_all_models()
            before = self.moved.total_bytes
            outputs.append(self.run(prompt))
            moved.append(self.moved.total_bytes - before)
        assert all(torch.equal(output, outputs[0]) for output in outputs)
        return Alone(outputs[0], self._steps(prompt), warm_bytes=moved[2], cold_bytes=moved[1])

    def _steps(self, prompt: str) -> list[Step]:
        """What the prompt that has just run needed, one phase after the other."""
        if prompt == IMAGE:
            return [Step({IMAGE: self.image.model_size()}, {IMAGE: self.image.loaded_size()})]
        return [
            Step(
                {f"{prompt}/{handle.name}": handle.size_bytes for handle in handles},
                {f"{prompt}/{handle.name}": handle.held_bytes for handle in handles},
            )
            for handles in self.noted
        ]


@dataclass(frozen=True, kw_only=True)
class Result:
    """exact: whether all outputs equalled their solo runs.

    by_rule_bytes: the oracle's; to_the_byte_bytes: without the tenth more that ComfyUI asks for.
    """

    prompts: int
    budget_bytes: int
    exact: bool
    moved: Moved
    by_rule_bytes: int
    to_the_byte_bytes: int
    streamed_mb: float
    entries: int

    @property
    def ratio(self) -> float:
        """Bytes moved for each that the oracle moved, by whichever of its two ways is the better."""
        return self.moved.total_bytes / min(self.by_rule_bytes, self.to_the_byte_bytes)


@contextmanager
def counted(size: str) -> Iterator[Moved]:
    """Counts the weights that are placed, with engines of this size."""
    moved, before = Moved(), WeightGroup.place

    def place(group: WeightGroup, *arguments: Any, **named: Any) -> None:
        moved.speech_bytes += group.size_bytes if group.placed_block is None else 0
        before(group, *arguments, **named)

    with patch.object(WeightGroup, "place", place), patch.dict(phases.CONFIGS, SMALL if size == "small" else LARGE):
        yield moved


def run(prompts: int, *, size: str = "small", seed: int = 1, dynamic: bool = False, **device: Any) -> Result:
    """So many prompts at random. size: of the models; device: as for `fake_device`."""
    units = IMAGE_UNITS[size]
    spare_bytes = round(SHARE * units * UNIT_BYTES) + 8 * MB
    rng = random.Random(seed)
    with one_thread(), counted(size) as moved, fake_device(spare_bytes, **device) as rig:
        image = rig.comfy(units=units)
        if dynamic:
            rig.comfys.discard(image)
            image = Dynamic(units * UNIT_BYTES, image.model)
            image.holds_bytes = 0
            rig.comfys.add(image)
        work = Workload(rig, image, moved)
        alone = {kind: work.alone(kind) for kind in (IMAGE, *MODELS)}
        mm.unload_all_models()
        moved.image_bytes = moved.speech_bytes = 0
        work.streamed_mb = 0.0
        whole = rig.manager.policy.mode in ("high", "shared")
        oracles = {share: Oracle(spare_bytes, whole) for share in (SHARE, 1.0)}
        exact = True
        for kind in rng.choices(list(alone), k=prompts):
            exact = torch.equal(work.run(kind), alone[kind].output) and exact
            for share, oracle in oracles.items():
                oracle.run(alone[kind], share)
        result = Result(
            prompts=prompts,
            budget_bytes=spare_bytes,
            exact=exact,
            moved=replace(moved),
            by_rule_bytes=round(oracles[SHARE].moved_bytes),
            to_the_byte_bytes=round(oracles[1.0].moved_bytes),
            streamed_mb=work.streamed_mb,
            entries=len(mm.current_loaded_models),
        )
        work.session.close()
    return result


def check(result: Result) -> None:
    assert result.exact
    assert result.entries <= 1 + 2 * len(MODELS)
    assert result.ratio <= 1.1, result


def scenario_workload_with_models_of_a_hundred_megabytes() -> None:
    check(run(8, size="large"))


def scenario_workload_with_dynamic_models() -> None:
    check(run(12, dynamic=True))


def scenario_workload_in_each_vram_state() -> None:
    for state in ("NORMAL_VRAM", "LOW_VRAM", "NO_VRAM", "HIGH_VRAM"):
        check(run(8, vram_state=state))
