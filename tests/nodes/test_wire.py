"""What travels on wires between ComfyUI and the runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace

import pytest
import torch


@pytest.fixture(scope="module")
def wire(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("nodes.wire")


@pytest.fixture(scope="module")
def types(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("mizuoto_runtime.types")


@pytest.fixture(scope="module")
def errors(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("mizuoto_runtime.errors")


@pytest.fixture(scope="module")
def piper(pack_module: Callable[[str], ModuleType]) -> object:
    return pack_module("mizuoto_runtime.engines.registry").engine_spec("piper")


def test_audio_goes_out_as_comfyui_has_it(wire: ModuleType, types: ModuleType) -> None:
    samples = torch.linspace(-1, 1, 12).reshape(2, 6)
    made = wire.audio_to_comfy(types.Audio(samples, 22_050))
    assert set(made) == {"waveform", "sample_rate"}
    assert made["waveform"].shape == (1, 2, 6) and made["waveform"].dtype == torch.float32
    assert made["sample_rate"] == 22_050
    assert torch.equal(made["waveform"][0], samples)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_audio_comes_in_with_its_channels_and_rate(wire: ModuleType, dtype: torch.dtype) -> None:
    waveform = torch.tensor([[[0.5, -0.5, 0.25], [1.0, 0.0, -1.0]]], dtype=dtype)
    audio = wire.audio_from_comfy({"waveform": waveform, "sample_rate": 44_100})
    assert audio.samples.dtype == torch.float32
    assert audio.samples.tolist() == waveform[0].tolist()
    assert audio.rate_hz == 44_100


def test_a_batch_comes_in_where_one_may_come(wire: ModuleType, pack_module: Callable[[str], ModuleType]) -> None:
    clone = pack_module("mizuoto_runtime.engines.registry").engine_spec("qwen3tts").phase("voice_from_audio")
    waveform = torch.rand(3, 2, 100)
    made = wire.phase_inputs(clone, {"reference": {"waveform": waveform, "sample_rate": 8_000}})
    assert torch.equal(made["reference"].samples, waveform)
    alone = wire.phase_inputs(clone, {"reference": {"waveform": waveform[:1], "sample_rate": 8_000}})
    assert torch.equal(alone["reference"].samples, waveform[0])


def test_audio_that_loads_when_read_is_fine(wire: ModuleType) -> None:
    class Lazy(Mapping):
        def __getitem__(self, key: str) -> object:
            return {"waveform": torch.zeros(1, 1, 3), "sample_rate": 8_000}[key]

        def __iter__(self):
            return iter(("waveform", "sample_rate"))

        def __len__(self) -> int:
            return 2

    assert wire.audio_from_comfy(Lazy()).samples.shape == (1, 3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("voice.wav", "must hold 'waveform' and 'sample_rate'; this is 'voice.wav'"),
        ({"waveform": torch.zeros(1, 1, 2)}, "must hold 'waveform'"),
        ({"waveform": torch.zeros(1, 1, 2), "sample_rate": 0}, "sample rate of the AUDIO is 0"),
        ({"waveform": torch.zeros(1, 1, 2), "sample_rate": True}, "sample rate of the AUDIO is True"),
        ({"waveform": torch.zeros(1, 1, 2), "sample_rate": 44_100.5}, "sample rate of the AUDIO is 44100.5"),
        ({"waveform": torch.zeros(3, 1, 2), "sample_rate": 8_000}, "holds 3 clips"),
        ({"waveform": torch.zeros(1, 2), "sample_rate": 8_000}, r"shape \(1, 2\)"),
        ({"waveform": torch.zeros(1, 1, 0), "sample_rate": 8_000}, r"shape \(1, 1, 0\)"),
        ({"waveform": None, "sample_rate": 8_000}, "waveform is None; it must be a tensor"),
        ({"waveform": torch.zeros(1, 1, 2).numpy(), "sample_rate": 8_000}, "waveform is ndarray; it must be a tensor"),
        ({"waveform": torch.full((1, 1, 2), float("nan")), "sample_rate": 8_000}, "aren't finite"),
    ],
)
def test_bad_audio_is_refused(wire: ModuleType, errors: ModuleType, value: object, message: str) -> None:
    with pytest.raises(errors.InputError, match=message):
        wire.audio_from_comfy(value)


def test_a_model_must_be_linked_and_of_the_right_engine(
    wire: ModuleType, errors: ModuleType, types: ModuleType, piper: object
) -> None:
    assert wire.model_ref(types.ModelRef("piper", "x"), piper) == ("piper", "x")
    with pytest.raises(errors.InputError, match="the input 'model' is 'x'; connect the Piper Model node"):
        wire.model_ref("x", piper)
    with pytest.raises(errors.InputError, match="is of engine 'dummy'; connect the Piper Model node"):
        wire.model_ref(types.ModelRef("dummy", "tones"), piper)
    with pytest.raises(errors.InputError, match="'model' is None; connect a Model node"):
        wire.model_ref(None)


def test_odd_values_are_shown_as_plain_ascii(wire: ModuleType, errors: ModuleType) -> None:
    with pytest.raises(errors.InputError) as caught:
        wire.model_ref("\ud800" + "水" * 500)
    assert str(caught.value).isascii() and len(str(caught.value)) < 200


def test_phase_inputs_leave_out_what_is_not_given(wire: ModuleType, piper: object) -> None:
    encode = piper.phase("encode")
    assert wire.phase_inputs(encode, {"model": 1, "text": "", "voice": None}) == {"text": ""}
    assert wire.phase_options(encode, {"text": "x", "noise_w": 0.5}) == {"noise_w": 0.5}


def test_a_report_is_json_that_utf8_can_hold(wire: ModuleType) -> None:
    meta = {"model": "voice\udcff", "label": "水音"}
    text = wire.report_text(meta)
    assert "水音" in text
    assert json.loads(text.encode("utf-8")) == meta


def test_errors_can_be_written_whatever_a_file_was_called(wire: ModuleType, errors: ModuleType) -> None:
    with pytest.raises(errors.ModelFileError) as caught, wire.writable_errors():
        raise errors.ModelFileError("voice\udcff.onnx is damaged: 音")
    assert str(caught.value) == "voice\\udcff.onnx is damaged: 音"
    with pytest.raises(KeyError), wire.writable_errors():
        raise KeyError("other errors pass")


def test_options_are_what_differs_from_the_defaults(wire: ModuleType, errors: ModuleType, piper: object) -> None:
    given = {"noise_scale": -1, "sentence_silence": 0, "speaker": "", "length_scale": 2, "noise_w": ["5", 0], "x": 1}
    assert wire.speak_options(piper, given) == ("piper", {"length_scale": 2, "noise_w": ["5", 0]})
    with pytest.raises(errors.InputError, match="option 'length_scale' is -0\\.5; it must be from"):
        wire.speak_options(piper, {"length_scale": -0.5})


def test_outputs_of_a_phase(wire: ModuleType, types: ModuleType, piper: object) -> None:
    report = types.PhaseReport(
        engine="piper",
        model="x",
        phase="decode",
        seconds=0.5,
        seed=7,
        options={},
        memory=types.MemoryReport(device="cpu"),
    )
    made = (types.Artifact("AUDIO", types.Audio(torch.zeros(1, 100), 1_000), (report,)),)
    audio, text = wire.phase_outputs(piper.phase("decode"), made)
    assert audio["waveform"].shape == (1, 1, 100)
    assert json.loads(text)["duration_seconds"] == 0.1
    encoding = types.Artifact("MIZUOTO_PIPER_ENCODING", object(), (report,))
    assert wire.phase_outputs(piper.phase("encode"), (encoding,)) == (encoding,)


def test_comfyuis_ram_probes_find_nothing_on_what_travels(wire: ModuleType, types: ModuleType) -> None:
    """ComfyUI asks outputs for these names, and calls what it finds."""
    names = ("get_ram_usage", "is_dynamic", "patcher", "get_models", "model_patches_models", "model")
    artifact = types.Artifact("MIZUOTO_PIPER_ENCODING", SimpleNamespace())
    for value in (artifact, wire.SpeakOptions("piper", {})):
        for name in names:
            assert not hasattr(value, name), f"{type(value).__name__}.{name}"
    for name in ("get_ram_usage", "is_dynamic", "patcher", "get_models"):
        assert not hasattr(types.ModelRef("piper", "x"), name)
