"""What upstream gave for tiny checkpoints of every generation: ids, lengths, latents and waves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.engines.voxcpm import speech
from mizuoto_runtime.engines.voxcpm.generate import Writer
from mizuoto_runtime.engines.voxcpm.phases import Voice
from mizuoto_runtime.engines.voxcpm.prompt import Prompt
from mizuoto_runtime.engines.voxcpm.speech import Latents
from mizuoto_runtime.engines.voxcpm.weights import Modules
from mizuoto_runtime.session import Session
from mizuoto_runtime.types import Audio
from tests.engines.voxcpm.conftest import GOLDEN, LATENT_TOLERANCE, WAVE_TOLERANCE, arrays, audio
from tests.golden.voxcpm.cases import CASES, CONFIGS, TEXTS

NUMBERS = range(len(CASES))
SOUNDS = ("reference", "prompt")


def inputs_of(case: dict[str, Any]) -> dict[str, object]:
    """What the case gives to the phase `voice`."""
    given: dict[str, object] = {name: audio(**case[name]) for name in SOUNDS if name in case}
    return given | ({"prompt_text": case["prompt_text"]} if "prompt_text" in case else {})


def options_of(case: dict[str, Any]) -> dict[str, object]:
    others = ("model", "text", "prompt_text", *SOUNDS)
    return {"retry_badcase": False} | {key: value for key, value in case.items() if key not in others}


def encoded(number: int) -> list[Tensor]:
    """What upstream encoded for the case, as (frames, latent), in its order: reference, prompt."""
    named = [f"{number}.encoded{index}" for index in range(2)]
    return [arrays()[name].T for name in named if name in arrays()]


@pytest.mark.parametrize("name", CONFIGS)
def test_ids_are_upstreams(modules: dict[str, Modules], name: str) -> None:
    made = [modules[name].tokenizer.encode(text) for text in TEXTS]
    assert made == GOLDEN["texts"][name]


def test_the_texts_tell_the_two_ways_of_putting_a_space_before_apart() -> None:
    assert GOLDEN["texts"]["v2"] != GOLDEN["texts"]["v2-varied"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_case_is_upstreams(session: Session, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """All phases: recordings, ids, every try's length, latents, the sound, and how many random numbers were drawn.

    However many tries there are, the prompt is read once.
    """
    case, recorded = CASES[number], GOLDEN["cases"][number]
    files = session.find("voxcpm", case["model"])
    inputs: dict[str, object] = {"text": case["text"]}
    if given := inputs_of(case):
        (voice,) = session.run_phase(files, "voice", given, {})
        assert isinstance(voice.value, Voice)
        _check_voice(voice.value, number)
        inputs["voice"] = voice
    watched = _Watched(monkeypatch)
    (latents,) = session.run_phase(files, "generate", inputs, options_of(case), seed=recorded["seed"])
    assert isinstance(latents.value, Latents)
    assert watched.ids == recorded["ids"]
    assert len(watched.writers) == 1
    context = len(latents.value.context)
    assert [length + context for length in watched.lengths] == recorded["patches"]
    assert watched.next_draw() == recorded["draw"]
    expected = arrays()[f"{number}.latents"].T
    assert expected.abs().max() > 1
    assert (latents.value.frames - expected).abs().max() <= LATENT_TOLERANCE
    (made,) = session.run_phase(files, "decode", {"latents": latents}, {})
    assert isinstance(made.value, Audio)
    wave = arrays()[f"{number}.wave"]
    assert wave.abs().max() > 0.1
    assert made.value.samples.shape == (1, recorded["samples"]) == (1, len(wave))
    assert made.value.rate_hz == recorded["rate_hz"]
    assert (made.value.samples[0] - wave).abs().max() <= WAVE_TOLERANCE


def _check_voice(voice: Voice, number: int) -> None:
    made = [each for each in (voice.reference, voice.prompt) if each is not None]
    for own, expected in zip(made, encoded(number), strict=True):
        assert expected.abs().max() > 0.1
        assert (own.flatten(0, 1) - expected).abs().max() <= LATENT_TOLERANCE


class _Watched:
    """What the phase `generate` begins with, and its tries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids: list[int] = []
        self.writers: list[Writer] = []
        self.lengths: list[int] = []
        watched = self

        class Watching(Writer):
            def __init__(self, *args: Any) -> None:
                prompt = args[1]
                assert isinstance(prompt, Prompt)
                watched.ids = [id_ for part in prompt.parts() for id_ in _ids(part)]
                watched.writers.append(self)
                super().__init__(*args)

            def latents(self) -> Tensor:
                watched.lengths.append(len(self.state.patches))
                return super().latents()

        monkeypatch.setattr(speech, "Writer", Watching)

    def next_draw(self) -> float:
        return float(torch.rand((), generator=self.writers[-1].rng))


def _ids(part: Any) -> list[int]:
    return [0] * len(part) if isinstance(part, Tensor) else list(part)
