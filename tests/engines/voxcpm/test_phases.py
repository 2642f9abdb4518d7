"""Requests as users make them: what they give, and what is refused or warned of."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mizuoto_runtime.engines.voxcpm import normalise, phases
from mizuoto_runtime.engines.voxcpm.network import VoxCpm
from mizuoto_runtime.engines.voxcpm.speech import STEP_PATCHES, Latents
from mizuoto_runtime.errors import InputError, MissingDependency, NotFinite
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio, Callbacks, Output, Progress
from tests.engines.damage import WRONG, damage
from tests.engines.voxcpm.conftest import audio
from tests.golden.voxcpm.cases import CONFIGS
from tests.golden.voxcpm.checkpoint import models, write_checkpoint

SOUND = {"length": 600, "seed": 51, "rate_hz": 16_000}
TEXT = "It was late; the moon was up."
INPUTS = ("reference", "reference_text", "prompt", "prompt_text", "voice")


def speak(session: Session, model: str = "v2", text: str = TEXT, *, seed: int = 1, **given: Any) -> Output:
    inputs = {name: given.pop(name) for name in INPUTS if name in given}
    options = {"inference_timesteps": 2, "max_len": 6, **given}
    request = SpeakRequest(text=text, seed=seed, inputs=inputs, options=options)
    return session.speak(session.find("voxcpm", model), request)


def patches(output: Output, samples: int = 48) -> float:
    return output.audio.samples.shape[1] / samples


def test_the_first_architecture_cuts_its_context_by_the_encoders_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two patches, as upstream, though its decoder makes more of them."""
    described = models()
    described["v0.5"]["shapes"]["audio_vae.decoder.model.3.block.1.weight_v"][2] = 2 * 3
    monkeypatch.setitem(CONFIGS["v0.5"]["audio_vae_config"], "decoder_rates", [5, 3])
    write_checkpoint(tmp_path / "voxcpm" / "v0.5", "v0.5", described=described)
    session = Session(resolve(environment={}), ModelLibrary([tmp_path]))
    made = speak(session, "v0.5", prompt=audio(**SOUND), prompt_text="It", min_len=6)
    assert made.audio.samples.shape == (1, (2 + 6) * 2 * 15 - 2 * 2 * 10)


def test_a_request_is_repeatable_and_another_seed_differs(session: Session) -> None:
    first, again, other = (speak(session, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.audio.samples, again.audio.samples)
    assert not torch.equal(first.audio.samples, other.audio.samples)
    assert first.audio.samples.std() > 1e-3


def test_whatever_voice_is_given_changes_the_speech(session: Session) -> None:
    sound = audio(**SOUND)
    ways: list[dict[str, Any]] = [
        {},
        {"control": "a calm voice"},
        {"reference": sound},
        {"prompt": sound, "prompt_text": "It was."},
        {"reference": sound, "prompt": sound, "prompt_text": "It was."},
    ]
    made = [speak(session, min_len=9, **way).audio.samples for way in ways]
    assert all(not torch.equal(one, other) for index, one in enumerate(made) for other in made[:index])
    assert {samples.shape for samples in made} == {(1, 6 * 48)}


def test_a_reference_with_its_text_is_a_prompt(session: Session) -> None:
    for model in ("v2", "v1.5"):
        as_reference = speak(session, model, reference=audio(**SOUND), reference_text="It was.")
        as_prompt = speak(session, model, prompt=audio(**SOUND), prompt_text="It was.")
        assert torch.equal(as_reference.audio.samples, as_prompt.audio.samples)


@pytest.mark.parametrize(
    ("model", "given", "problem"),
    [
        ("v2", {"prompt": audio(**SOUND)}, "a prompt is a recording and its text; connect prompt_text"),
        ("v2", {"reference": audio(**SOUND), "prompt_text": "a"}, "connect prompt: the recording itself"),
        ("v1.5", {"reference": audio(**SOUND)}, "only with its text, word for word; give the reference's text"),
        ("v0.5", {"control": "calm"}, "only VoxCPM 2 takes a description"),
        ("v2", {"control": "calm", "prompt": audio(**SOUND), "prompt_text": "a"}, "which takes no description"),
        ("v2", {"reference": Audio(torch.zeros(1, 900), 16_000)}, "the reference is silent"),
        ("v2", {"prompt": Audio(torch.zeros(1, 900), 16_000), "prompt_text": "a"}, "the prompt is silent"),
        ("v2", {"prompt": Audio(torch.ones(1, 900), 16), "prompt_text": "a"}, "the prompt has 16 Hz"),
        ("v2", {"prompt": Audio(torch.full((1, 9), 1e9), 16_000), "prompt_text": "a"}, "the prompt's peak is"),
        ("v2", {"inference_timesteps": 0}, "option 'inference_timesteps' is 0"),
        ("v2", {"text": "the moon " * 300}, "the prompt has .* positions, the model takes 256"),
        ("v2", {"text": "half \\ud800"}, "half a surrogate pair"),
    ],
)
def test_what_cannot_be_done_is_said(session: Session, model: str, given: dict[str, Any], problem: str) -> None:
    text = given.get("text", TEXT).replace("\\ud800", "\ud800")
    with pytest.raises(InputError, match=problem):
        speak(session, model, text, **{key: value for key, value in given.items() if key != "text"})


def test_a_text_of_which_nothing_is_left_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match="nothing is left of the text once it is normalised"):
        speak(session, text="`code`", normalize=True)


def test_a_references_text_beside_a_prompt_is_not_read_and_said_so(session: Session) -> None:
    given = {"reference": audio(**SOUND), "prompt": audio(**SOUND), "prompt_text": "It was."}
    plain, more = speak(session, **given), speak(session, **given, reference_text="It was.")
    assert torch.equal(plain.audio.samples, more.audio.samples)
    assert "the reference's text isn't read" in str(more.meta["warnings"])
    assert "the reference's text isn't read" not in str(plain.meta["warnings"])


@pytest.mark.parametrize(("seconds", "warned"), [(0.4, True), (1.1, False)])
def test_a_short_recording_is_a_warning(session: Session, seconds: float, warned: bool) -> None:
    sound = audio(length=int(16_000 * seconds), seed=51, rate_hz=16_000)
    files = session.find("voxcpm", "v2")
    given = {"reference": {}, "prompt": {"prompt_text": "It was."}}
    for name, more in (*given.items(), ("reference", {"reference_text": "It was."})):
        (voice,) = session.run_phase(files, "voice", {name: sound, **more}, {})
        expected = (f"the {name} has {seconds:.2f} s of sound; 3 to 15 s are best",)
        assert voice.reports[-1].warnings == (expected if warned else ())


def test_the_phase_for_voices_needs_a_recording(session: Session) -> None:
    with pytest.raises(InputError, match="a voice needs a recording"):
        session.run_phase(session.find("voxcpm", "v2"), "voice", {}, {})


def test_voices_and_latents_of_another_model_are_refused(session: Session) -> None:
    files = {name: session.find("voxcpm", name) for name in ("v2", "v1.5", "v2-varied")}
    (voice,) = session.run_phase(files["v2"], "voice", {"reference": audio(**SOUND)}, {})
    with pytest.raises(InputError, match="the voice is VoxCPM 2's, this is an earlier model"):
        speak(session, "v1.5", voice=voice)
    with pytest.raises(InputError, match=r"patches of \(4, 8\), this model's are \(3, 8\)"):
        speak(session, "v2-varied", voice=voice)
    (latents,) = session.run_phase(files["v2"], "generate", {"text": TEXT}, {"max_len": 2})
    with pytest.raises(InputError, match=r"latents have patches of \(4, 8\), this model's are \(3, 8\)"):
        session.run_phase(files["v2-varied"], "decode", {"latents": latents}, {})


def test_they_are_of_another_generation_with_patches_of_the_same_size(session: Session) -> None:
    sound = {"prompt": audio(**SOUND), "prompt_text": "It was."}
    (voice,) = session.run_phase(session.find("voxcpm", "v1.5"), "voice", sound, {})
    with pytest.raises(InputError, match="of a model that hears 44,100 Hz, this one hears 16,000 Hz"):
        speak(session, "v2", voice=voice)
    (latents,) = session.run_phase(session.find("voxcpm", "v1.5"), "generate", {"text": TEXT}, {"max_len": 2})
    with pytest.raises(InputError, match="of sound at 44,100 Hz, this model's at 48,000 Hz"):
        session.run_phase(session.find("voxcpm", "v2"), "decode", {"latents": latents}, {})


def test_speech_without_an_end_is_cut_off_and_said_so(session: Session) -> None:
    by_length = speak(session, min_len=60)
    assert "cut off after 6 patches" in str(by_length.meta["warnings"])
    by_text = speak(session, text="go", min_len=600, max_len=4096, retry_badcase=False)
    assert patches(by_text) == 6 * 3 + 10
    assert "the model found no end" in str(by_text.meta["warnings"])


def test_a_bad_case_is_tried_again_and_said_so(session: Session) -> None:
    how = {"text": "go", "min_len": 5, "max_len": 60, "retry_badcase_ratio_threshold": 1.0}
    tries = [speak(session, retry_badcase_max_times=times, **how) for times in (1, 3)]
    assert "retried" not in str(tries[0].meta["applied"])
    assert "'retried': 2" in str(tries[1].meta["applied"])
    assert "too long for its text 3 times" in str(tries[1].meta["warnings"])
    assert not torch.equal(tries[0].audio.samples, tries[1].audio.samples)


def test_there_is_no_more_room_than_the_model_says(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "voxcpm" / "v2", "v2", endless=True)
    session = Session(resolve(environment={}), ModelLibrary([tmp_path]))
    output = speak(session, text="the moon was up and so on " * 6, max_len=4096)
    warnings = str(output.meta["warnings"])
    assert "the model has room for" in warnings
    assert "where the model's room ends; shorten the text or the recordings" in warnings
    assert "found no end" not in warnings


def test_the_user_chooses_the_dtype(root: Path) -> None:
    session = Session(resolve({"compute.dtype": "bfloat16"}, {}), ModelLibrary([root]))
    output = speak(session)
    handles = {handle.name: handle for handle in session.open(session.find("voxcpm", "v2")).handles}
    module = handles["model"].module
    assert isinstance(module, VoxCpm) and module.dtype == torch.bfloat16
    assert "bfloat16" in str(output.meta["applied"])


def test_apples_gpus_compute_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        def __init__(self, device: str, dtype: str = "") -> None:
            self.device, self.dtype = device, dtype

    assert phases._dtype(Asked("mps")) == torch.float32  # type: ignore[arg-type]
    assert phases._dtype(Asked("mps", "bfloat16")) == torch.bfloat16  # type: ignore[arg-type]
    assert phases._dtype(Asked("cuda:0")) is None  # type: ignore[arg-type]


def test_normalising_changes_what_is_spoken_and_is_noted(session: Session) -> None:
    output = speak(session, text="3 moons", normalize=True)
    assert torch.equal(output.audio.samples, speak(session, text="three moons").audio.samples)
    assert "three moons" in str(output.meta["applied"])


@pytest.mark.parametrize("package", ["wetext", "inflect", "regex"])
def test_a_missing_library_for_normalising_is_said(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=f"needs the package {package}: pip install wetext inflect regex"):
        normalise.normalise("3 moons")


def test_decoding_in_small_tiles_gives_nearly_the_same(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the fallback does instead; in float64, where rounding hides nothing."""
    files = session.find("voxcpm", "v2-rates")
    next(handle for handle in session.open(files).handles if handle.name == "vae_decoder").module.double()
    (latents,) = session.run_phase(files, "generate", {"text": TEXT}, {"min_len": 9, "max_len": 9})
    assert isinstance(latents.value, Latents)
    value = replace(latents.value, patches=latents.value.patches.double(), context=latents.value.context.double())
    latents = replace(latents, value=value)
    (whole,) = session.run_phase(files, "decode", {"latents": latents}, {})
    run = PhaseContext.run

    def thrifty(self: PhaseContext, name: str, handles: Any, fn: Any, memory: int, **given: Any) -> Any:
        return run(self, name, handles, given["fallback"][1] if name == "vae decoder" else fn, memory)

    monkeypatch.setattr(PhaseContext, "run", thrifty)
    (tiled,) = session.run_phase(files, "decode", {"latents": latents}, {})
    assert whole.value.samples.dtype == torch.float64
    assert (tiled.value.samples - whole.value.samples).abs().max() < 1e-10


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    ("weight", "min_len", "problem"),
    [
        ("model:base_lm.layers.0.mlp.up_proj.weight", 4096, "the values of a patch aren't finite"),
        ("model:feat_decoder.out_proj.bias", 4096, "the values of a patch aren't finite"),
        ("model:feat_decoder.out_proj.bias", 1, "the logits of the speech's end aren't finite"),
        ("model:stop_head.weight", 1, "the logits of the speech's end aren't finite"),
        ("vae_encoder:mean.bias", 1, r"VoxCPM Voice: 152 of 1,216 values aren't finite"),
    ],
)
def test_weights_that_are_no_numbers_give_no_speech(
    session: Session, weight: str, min_len: int, problem: str, value: float
) -> None:
    """And not only after the longest speech there can be."""
    files = session.find("voxcpm", "v2")
    damage(session, files, weight, value)
    told: list[Progress] = []
    how = {"max_len": 4096, "min_len": min_len}
    with pytest.raises(NotFinite, match=problem):
        request = SpeakRequest(text=TEXT, inputs={"reference": audio(**SOUND)}, options=how)
        session.speak(files, request, Callbacks(told.append))
    assert len(told) <= STEP_PATCHES
