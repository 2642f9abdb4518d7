"""Qwen3-TTS, 12 Hz family: a talker that writes codec frames, with cloned, preset and designed voices."""

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
    package,
)
from .catalog import LANGUAGES, SPEAKERS, TAGS, VARIANTS

VOICE = "VOICE"
CODES = "CODES"
AUTO = "auto"
SWITCH = (AUTO, "true", "false")

VOICES_FOLDER = "voices"
MODEL_PORT = Port(name="model", type=MODEL, label="model", tooltip="A Qwen3-TTS model.")
VOICE_OUT = Port(name="voice", type=VOICE, label="voice", tooltip="For Qwen3-TTS Talker or Speak.")

CLONE = Phase(
    id="voice_from_audio",
    label="Voice from Audio",
    tooltip="The voice of a recording, for Base models. With the recording's text it is followed more closely.",
    takes=(
        MODEL_PORT,
        Port(
            name="reference",
            type=AUDIO,
            label="reference",
            tooltip="One speaker without noise; 3 to 15 seconds are best, at most 60 are taken.",
            batch=True,
        ),
        Port(
            name="reference_text",
            type=TEXT,
            label="reference text",
            tooltip="What is said in the recording, word for word. Empty: only the sound of the voice is taken.",
            optional=True,
        ),
    ),
    gives=(VOICE_OUT,),
    params=(
        Param(
            name="x_vector_only_mode",
            kind="bool",
            default=False,
            label="x-vector only",
            tooltip="Take only the sound of the voice, even if the recording's text is given.",
            advanced=True,
        ),
    ),
    when=("reference",),
)

PRESET = Phase(
    id="preset_voice",
    label="Preset Voice",
    tooltip="One of the speakers of a CustomVoice model.",
    takes=(MODEL_PORT,),
    gives=(VOICE_OUT,),
    params=(
        Param(
            name="speaker",
            kind="text",
            default="",
            label="speaker",
            tooltip=f"The speaker's name; the published models have {', '.join(SPEAKERS)}. Empty: none.",
        ),
    ),
    when=("speaker",),
)

DESIGN = Phase(
    id="designed_voice",
    label="Designed Voice",
    tooltip="A voice made from a description, for VoiceDesign models.",
    takes=(MODEL_PORT,),
    gives=(VOICE_OUT,),
    params=(
        Param(
            name="description",
            kind="text",
            default="",
            label="description",
            tooltip="How the voice sounds: gender, age, pitch, mood, manner; in English or Chinese.",
        ),
    ),
    when=("description",),
)

LOAD = Phase(
    id="load_voice",
    label="Load Voice",
    tooltip="A voice that Qwen3-TTS Save Voice has saved.",
    takes=(MODEL_PORT,),
    gives=(VOICE_OUT,),
    params=(
        Param(
            name="voice_file",
            kind="text",
            default="",
            label="saved voice",
            tooltip="The name under which the voice was saved, in the folder voices beside the models.",
        ),
    ),
    when=("voice_file",),
    reads=(f"{VOICES_FOLDER}/{{voice_file}}.json", f"{VOICES_FOLDER}/{{voice_file}}.safetensors"),
)

SAVE = Phase(
    id="save_voice",
    label="Save Voice",
    tooltip="Saves a voice in the folder voices beside the models, and passes it on.",
    takes=(MODEL_PORT, Port(name="voice", type=VOICE, label="voice", tooltip="The voice to save.")),
    gives=(Port(name="saved", type=VOICE, label="voice", tooltip="The same voice."),),
    params=(
        Param(
            name="save_voice_as",
            kind="text",
            default="",
            label="save as",
            tooltip="Letters, digits, spaces, - and _. A voice of that name is replaced.",
        ),
    ),
    when=("save_voice_as",),
)


def _number(name: str, label: str, tooltip: str, low: float, high: float, *, step: float = 0.05) -> Param:
    return Param(
        name=name,
        kind="float",
        default=-1.0,
        auto=-1.0,
        low=low,
        high=high,
        step=step,
        label=label,
        tooltip=f"{tooltip} -1: the model's own.",
        advanced=name not in ("temperature",),
    )


def _count(name: str, label: str, tooltip: str) -> Param:
    return Param(
        name=name,
        kind="int",
        default=-1,
        auto=-1,
        low=0,
        high=100_000,
        label=label,
        tooltip=f"{tooltip} 0: all. -1: the model's own.",
        advanced=True,
    )


def _switch(name: str, label: str, tooltip: str) -> Param:
    return Param(
        name=name, kind="choice", default=AUTO, auto=AUTO, choices=SWITCH, label=label, tooltip=tooltip, advanced=True
    )


TALKER = Phase(
    id="talker",
    label="Talker",
    tooltip="Text to codec frames, 12.5 a second.",
    takes=(
        MODEL_PORT,
        Port(name="text", type=TEXT, label="text", tooltip="What to say."),
        Port(name="voice", type=VOICE, label="voice", tooltip="Whose voice; Base models need one.", optional=True),
    ),
    gives=(Port(name="codes", type=CODES, label="codes", tooltip="Codec frames, for Qwen3-TTS Decode."),),
    params=(
        Param(
            name="language",
            kind="choice",
            default=AUTO,
            choices=(AUTO, *LANGUAGES),
            label="language",
            tooltip="The text's language; auto lets the model find out.",
        ),
        Param(
            name="instruct",
            kind="text",
            default="",
            label="instruction",
            tooltip="How to say it, for CustomVoice 1.7B: mood, pace, volume. VoiceDesign: the voice's description.",
        ),
        _number("temperature", "temperature", "How much the first code of a frame varies.", 0.01, 10.0),
        _count("top_k", "top k", "So many of the likeliest first codes are considered."),
        _number("top_p", "top p", "First codes are considered until their probabilities reach this.", 0.0, 1.0),
        _number("repetition_penalty", "repetition penalty", "Above 1 first codes that were used get rarer.", 0.1, 10.0),
        _switch("do_sample", "sample", "Whether the first code is chosen by chance, or always the likeliest."),
        _number("subtalker_temperature", "subtalker temperature", "How much the other codes vary.", 0.01, 10.0),
        _count("subtalker_top_k", "subtalker top k", "So many of the likeliest other codes are considered."),
        _number("subtalker_top_p", "subtalker top p", "As top p, for the other codes.", 0.0, 1.0),
        _switch("subtalker_dosample", "subtalker sample", "As sample, for the other codes."),
        Param(
            name="max_new_tokens",
            kind="int",
            default=-1,
            auto=-1,
            low=2,
            high=65_536,
            label="most frames",
            tooltip="Most frames of a piece of text, and one more; 12.5 are a second. -1: the model's own.",
            advanced=True,
        ),
        _switch(
            "non_streaming_mode",
            "non-streaming",
            "Whether the model sees all of the text first; auto: only with preset and designed voices.",
        ),
        Param(
            name="split_tokens",
            kind="int",
            default=300,
            low=0,
            high=100_000,
            label="split",
            tooltip="A text of more tokens than this is spoken in pieces, split at sentences. 0: never.",
            advanced=True,
        ),
    ),
    seeded=True,
)

DECODE = Phase(
    id="decode",
    label="Decode",
    tooltip="Codec frames to audio.",
    takes=(
        MODEL_PORT,
        Port(name="codes", type=CODES, label="codes", tooltip="What Qwen3-TTS Talker gives."),
    ),
    gives=(Port(name="audio", type=AUDIO, label="audio", tooltip="Mono speech at 24,000 Hz."),),
    params=(
        Param(
            name="sentence_silence",
            kind="float",
            default=0.2,
            low=0.0,
            high=10.0,
            step=0.05,
            unit="seconds",
            label="silence",
            tooltip="Silence between the pieces of a text that was split, in seconds.",
            advanced=True,
        ),
    ),
)


SPEC = EngineSpec(
    id="qwen3tts",
    label="Qwen3-TTS",
    description="Cloned, preset and designed voices in ten languages.",
    licence="Apache-2.0",
    layout=Layout(kind="folder", marker="config.json"),
    components=(
        Component(name="talker", kind="sequence", tooltip="Language model and code predictor."),
        Component(name="codec_decoder", kind="oneshot", tooltip="Codes to samples."),
        Component(name="codec_encoder", kind="oneshot", tooltip="Samples to codes; Base models only."),
        Component(name="speaker_encoder", kind="oneshot", tooltip="The sound of a voice; Base models only."),
    ),
    phases=(SAVE, CLONE, PRESET, DESIGN, LOAD, TALKER, DECODE),
    phased=True,
    capabilities=Capabilities(clone=True, preset_voices=True, description=True, languages=TAGS),
    variants=VARIANTS,
    requirements=(
        package("tokenizers", purpose="the text's tokens"),
        package("soxr", purpose="recordings at other sample rates"),
    ),
)
