"""F5-TTS and E2-TTS: cloned voices by flow matching, in Chinese and English; and editing of recordings."""

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
from .catalog import LICENCE, TAGS, VARIANTS

VOICE = "VOICE"
MEL = "MEL"
VOCABULARY = "vocab.txt"
VOCODER_FOLDERS = ("vocos", "vocos-mel-24khz")

MODEL_PORT = Port(name="model", type=MODEL, label="model", tooltip="An F5-TTS or E2-TTS model.")
MEL_OUT = Port(name="mel", type=MEL, label="mel", tooltip="Mel spectrograms, for F5-TTS Vocoder.")

REFERENCE = Phase(
    id="reference",
    label="Reference",
    tooltip="The voice of a recording and its transcript. Long silences are cut, and all after 12 s.",
    takes=(
        MODEL_PORT,
        Port(
            name="reference",
            type=AUDIO,
            label="reference",
            tooltip="One speaker without noise, 3 to 12 seconds, with a pause at its end.",
        ),
        Port(
            name="reference_text",
            type=TEXT,
            label="reference text",
            tooltip="What is said in the recording, word for word; it is needed.",
            optional=True,
        ),
    ),
    gives=(Port(name="voice", type=VOICE, label="voice", tooltip="For F5-TTS Sample or Speak."),),
)

SAMPLING = (
    Param(
        name="nfe_step",
        kind="int",
        default=32,
        low=1,
        high=1000,
        label="steps",
        tooltip="Steps from noise to speech; fewer are faster. 5, 6, 7, 10, 12 and 16 have times of their own.",
    ),
    Param(
        name="cfg_strength",
        kind="float",
        default=2.0,
        low=0.0,
        high=10.0,
        step=0.1,
        label="guidance",
        tooltip="How closely text and voice are followed. 0: not guided, twice as fast.",
    ),
    Param(
        name="sway_sampling_coef",
        kind="float",
        default=-1.0,
        low=-1.0,
        high=1.75,
        step=0.05,
        label="sway",
        tooltip="Below 0 more of the steps are early, where the text is laid out. 0: evenly spread.",
        advanced=True,
    ),
    Param(
        name="ode_method",
        kind="choice",
        default="euler",
        choices=("euler", "midpoint"),
        label="method",
        tooltip="How a step is taken. midpoint: more exactly, in twice the time.",
        advanced=True,
    ),
)

SAMPLE = Phase(
    id="sample",
    label="Sample",
    tooltip="Text to mel spectrograms, in the voice of a reference. A long text is spoken in pieces.",
    takes=(
        MODEL_PORT,
        Port(name="text", type=TEXT, label="text", tooltip="What to say, in the language of the reference or another."),
        Port(name="voice", type=VOICE, label="voice", tooltip="Whose voice, from F5-TTS Reference."),
    ),
    gives=(MEL_OUT,),
    params=(
        *SAMPLING,
        Param(
            name="speed",
            kind="float",
            default=1.0,
            low=0.1,
            high=10.0,
            step=0.05,
            label="speed",
            tooltip="2 speaks twice as fast as the reference. A text of less than 10 bytes has its own speed.",
        ),
        Param(
            name="fix_duration",
            kind="float",
            default=0.0,
            auto=0.0,
            low=0.1,
            high=690.0,
            step=0.1,
            unit="seconds",
            label="fixed duration",
            tooltip="Seconds of reference and speech together. 0: as the reference's pace says.",
            advanced=True,
        ),
        Param(
            name="cross_fade_duration",
            kind="float",
            default=0.15,
            low=0.0,
            high=5.0,
            step=0.01,
            unit="seconds",
            label="cross-fade",
            tooltip="How long the pieces of a long text overlap, in seconds.",
            advanced=True,
        ),
    ),
    seeded=True,
)

EDIT = Phase(
    id="edit",
    label="Edit Speech",
    tooltip="Speaks spans of a recording anew and keeps the rest.",
    takes=(
        MODEL_PORT,
        Port(name="recording", type=AUDIO, label="recording", tooltip="The recording to edit, whole."),
        Port(
            name="text",
            type=TEXT,
            label="text",
            tooltip="All that the recording shall say afterwards, what stays the same included.",
        ),
    ),
    gives=(MEL_OUT,),
    params=(
        Param(
            name="parts_to_edit",
            kind="text",
            default="",
            label="spans",
            tooltip="Spans to speak anew, in seconds: 1.42-2.44, 4.04-4.9",
        ),
        Param(
            name="part_durations",
            kind="text",
            default="",
            label="durations",
            tooltip="How long each span is afterwards, in seconds: 1.2, 1. Empty: as long as before.",
        ),
        *SAMPLING,
    ),
    seeded=True,
    when=("recording", "parts_to_edit"),
)

VOCODER = Phase(
    id="vocoder",
    label="Vocoder",
    tooltip="Mel spectrograms to audio, by Vocos.",
    takes=(MODEL_PORT, Port(name="mel", type=MEL, label="mel", tooltip="What F5-TTS Sample or Edit Speech gives.")),
    gives=(Port(name="audio", type=AUDIO, label="audio", tooltip="Mono speech at 24,000 Hz."),),
)


SPEC = EngineSpec(
    id="f5tts",
    label="F5-TTS",
    description="Cloned voices in Chinese and English, and speech editing; F5-TTS and E2-TTS.",
    licence=f"GPL-3.0-or-later; the published weights {LICENCE}",
    layout=Layout(kind="folder", marker="model_*", around=(VOCABULARY, *VOCODER_FOLDERS)),
    components=(
        Component(name="transformer", kind="oneshot", tooltip="Text and reference to mel spectrogram, step by step."),
        Component(name="vocoder", kind="oneshot", tooltip="Mel spectrogram to samples."),
    ),
    phases=(REFERENCE, SAMPLE, EDIT, VOCODER),
    phased=True,
    capabilities=Capabilities(clone=True, languages=TAGS),
    variants=VARIANTS,
    requirements=(package("PyYAML", module="yaml", purpose="the vocoder's settings"),),
)
