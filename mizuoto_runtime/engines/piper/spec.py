"""Piper: VITS voices as published for piper-tts, one `.onnx` and one `.onnx.json` file a voice."""

from __future__ import annotations

from ..spec import (
    AUDIO,
    MODEL,
    TEXT,
    Capabilities,
    Component,
    EngineSpec,
    Layout,
    Param,
    Phase,
    Port,
    Requirement,
)
from .catalog import LANGUAGES, VARIANTS

VOICE = "VOICE"
ENCODING = "ENCODING"

SPEAKER = Phase(
    id="voice",
    label="Voice",
    tooltip="One speaker of a voice that has several.",
    takes=(Port(name="model", type=MODEL, label="model", tooltip="A Piper voice."),),
    gives=(Port(name="voice", type=VOICE, label="voice", tooltip="The speaker, for Piper Encode or Speak."),),
    params=(
        Param(
            name="speaker",
            kind="text",
            default="",
            auto="",
            label="speaker",
            tooltip="The speaker's name or number. Empty: the voice's default speaker.",
        ),
    ),
    when=("speaker",),
)

ENCODE = Phase(
    id="encode",
    label="Encode",
    tooltip="Text to phonemes, their encoding and their durations, sentence by sentence.",
    takes=(
        Port(name="model", type=MODEL, label="model", tooltip="A Piper voice."),
        Port(name="text", type=TEXT, label="text", tooltip="What to say. [[ ]] encloses phonemes written by hand."),
        Port(name="voice", type=VOICE, label="voice", tooltip="A speaker; else the default one.", optional=True),
    ),
    gives=(
        Port(name="encoding", type=ENCODING, label="encoding", tooltip="Encoded sentences, each with its durations."),
    ),
    params=(
        Param(
            name="length_scale",
            kind="float",
            default=-1.0,
            auto=-1.0,
            low=0.1,
            high=10.0,
            step=0.05,
            label="length scale",
            tooltip="How long sounds are held: 2 speaks half as fast, 0.5 twice as fast. -1: the voice's own.",
        ),
        Param(
            name="noise_w",
            kind="float",
            default=-1.0,
            auto=-1.0,
            low=0.0,
            high=2.0,
            step=0.01,
            label="duration noise",
            tooltip="How much the rhythm varies from seed to seed. 0: not at all. -1: the voice's own.",
            advanced=True,
        ),
    ),
    seeded=True,
)

DECODE = Phase(
    id="decode",
    label="Decode",
    tooltip="Encoded sentences to audio: the flow, then the HiFi-GAN decoder.",
    takes=(
        Port(name="model", type=MODEL, label="model", tooltip="The same Piper voice that encoded the text."),
        Port(name="encoding", type=ENCODING, label="encoding", tooltip="What Piper Encode gives."),
    ),
    gives=(Port(name="audio", type=AUDIO, label="audio", tooltip="Mono speech at the voice's own sample rate."),),
    params=(
        Param(
            name="noise_scale",
            kind="float",
            default=-1.0,
            auto=-1.0,
            low=0.0,
            high=2.0,
            step=0.01,
            label="voice noise",
            tooltip="How much the sound of the voice varies from seed to seed. 0: not at all. -1: the voice's own.",
        ),
        Param(
            name="sentence_silence",
            kind="float",
            default=0.0,
            low=0.0,
            high=10.0,
            step=0.05,
            unit="seconds",
            label="sentence silence",
            tooltip="Silence between sentences, in seconds.",
        ),
    ),
    seeded=True,
)



def _check_espeak() -> None:
    from ...text.espeak_library import check_installed

    check_installed()


SPEC = EngineSpec(
    id="piper",
    label="Piper",
    description="Small, fast voices in many languages; real time on a CPU.",
    licence="GPL-3.0-or-later; each voice has its own licence, see its MODEL_CARD",
    layout=Layout(kind="file", suffix=".onnx", companions=(".json",)),
    components=(
        Component(name="encoder", kind="oneshot", tooltip="Text encoder and duration predictor."),
        Component(name="decoder", kind="oneshot", tooltip="Flow and HiFi-GAN decoder."),
    ),
    phases=(SPEAKER, ENCODE, DECODE),
    phased=True,
    capabilities=Capabilities(preset_voices=True, languages=LANGUAGES),
    variants=VARIANTS,
    requirements=(Requirement(package="espeakng-loader", purpose="espeak-ng's phonemes", check=_check_espeak),),
)
