"""OmniVoice: speech in 646 languages by a masked language model, with cloned, designed and made-up voices."""

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
CODES = "CODES"

MODEL_PORT = Port(name="model", type=MODEL, label="model", tooltip="An OmniVoice model.")
VOICE_OUT = Port(name="voice", type=VOICE, label="voice", tooltip="For OmniVoice Generate or Speak.")
INSTRUCT = Param(
    name="instruct",
    kind="text",
    default="",
    label="attributes",
    tooltip=(
        "One of each, with commas between: male, female; child, teenager, young adult, middle-aged, elderly; very low "
        "pitch to very high pitch; whisper; british accent and others; 四川话 and other dialects. Chinese words do too."
    ),
)

CLONE = Phase(
    id="voice",
    label="Voice",
    tooltip="The voice of a recording and its transcript. Long silences are cut.",
    takes=(
        MODEL_PORT,
        Port(
            name="reference",
            type=AUDIO,
            label="reference",
            tooltip="One speaker without noise; 3 to 10 seconds are best.",
            batch=True,
        ),
        Port(
            name="reference_text",
            type=TEXT,
            label="reference text",
            tooltip="What is said in the recording, word for word; it is needed.",
            optional=True,
        ),
    ),
    gives=(VOICE_OUT,),
    params=(
        INSTRUCT,
        Param(
            name="preprocess_prompt",
            kind="bool",
            default=True,
            label="clean up",
            tooltip="Cut long silences out of the recording, and end its text with a full stop.",
            advanced=True,
        ),
    ),
    when=("reference",),
)

DESIGN = Phase(
    id="designed_voice",
    label="Designed Voice",
    tooltip="A voice made from attributes such as female, low pitch, british accent.",
    takes=(MODEL_PORT,),
    gives=(VOICE_OUT,),
    params=(INSTRUCT,),
    when=("instruct",),
)

UNMASKING = (
    Param(
        name="num_step",
        kind="int",
        default=32,
        low=1,
        high=1000,
        label="steps",
        tooltip="Steps from masks to codes; 16 take half the time.",
    ),
    Param(
        name="guidance_scale",
        kind="float",
        default=2.0,
        low=0.0,
        high=20.0,
        step=0.1,
        label="guidance",
        tooltip="How closely text and voice are followed. 0: not guided, which is faster.",
    ),
    Param(
        name="position_temperature",
        kind="float",
        default=5.0,
        low=0.0,
        high=100.0,
        step=0.1,
        label="place temperature",
        tooltip="How much chance is in which codes are fixed first. 0: always the surest.",
    ),
    Param(
        name="class_temperature",
        kind="float",
        default=0.0,
        low=0.0,
        high=100.0,
        step=0.05,
        label="code temperature",
        tooltip="How much chance is in the codes themselves. 0: always the likeliest.",
    ),
    Param(
        name="t_shift",
        kind="float",
        default=0.1,
        low=0.001,
        high=100.0,
        step=0.01,
        label="time shift",
        tooltip="Below 1 early steps fix fewer codes than late ones.",
        advanced=True,
    ),
    Param(
        name="layer_penalty_factor",
        kind="float",
        default=5.0,
        low=0.0,
        high=100.0,
        step=0.1,
        label="codebook penalty",
        tooltip="How strongly coarse codes are fixed before fine ones.",
        advanced=True,
    ),
)

GENERATE = Phase(
    id="generate",
    label="Generate",
    tooltip="Text to codes, all of them at once and surer with each step. A long text is spoken in chunks.",
    takes=(
        MODEL_PORT,
        Port(
            name="text",
            type=TEXT,
            label="text",
            tooltip="What to say. [laughter], [sigh], [surprise-ah] and others are sounds; [B EY1 S] and NI3 say how.",
        ),
        Port(
            name="voice",
            type=VOICE,
            label="voice",
            tooltip="Whose voice, from OmniVoice Voice or Designed Voice. Without one the model makes one up.",
            optional=True,
        ),
    ),
    gives=(Port(name="codes", type=CODES, label="codes", tooltip="For OmniVoice Decode."),),
    params=(
        Param(
            name="language",
            kind="text",
            default="",
            label="language",
            tooltip="A name or id such as English, en, Chinese, zh, Cantonese, yue; 646 are known. Empty: any.",
        ),
        Param(
            name="speed",
            kind="float",
            default=1.0,
            low=0.1,
            high=10.0,
            step=0.05,
            label="speed",
            tooltip="2 speaks twice as fast as the reference, or as usual.",
        ),
        Param(
            name="duration",
            kind="float",
            default=0.0,
            auto=0.0,
            low=0.01,
            high=3600.0,
            step=0.1,
            unit="seconds",
            label="duration",
            tooltip="Seconds of speech, whatever the speed says. 0: as long as the text needs.",
        ),
        *UNMASKING,
        Param(
            name="denoise",
            kind="bool",
            default=True,
            label="denoise",
            tooltip="Speak without the reference's noise.",
            advanced=True,
        ),
        Param(
            name="audio_chunk_duration",
            kind="float",
            default=15.0,
            low=0.1,
            high=600.0,
            step=0.5,
            unit="seconds",
            label="chunk",
            tooltip="About how long the chunks of a long text are, in seconds.",
            advanced=True,
        ),
        Param(
            name="audio_chunk_threshold",
            kind="float",
            default=30.0,
            low=0.0,
            high=3600.0,
            step=0.5,
            unit="seconds",
            label="chunk from",
            tooltip="A text that needs more seconds than this is spoken in chunks.",
            advanced=True,
        ),
        Param(
            name="normalize_text",
            kind="bool",
            default=False,
            label="normalise",
            tooltip="Spell out numbers, dates and units. Needs the package wetext; other languages than Chinese and "
            "English need num2words.",
            advanced=True,
        ),
    ),
    seeded=True,
)

DECODE = Phase(
    id="decode",
    label="Decode",
    tooltip="Codes to audio, as loud as the reference was.",
    takes=(MODEL_PORT, Port(name="codes", type=CODES, label="codes", tooltip="What OmniVoice Generate gives.")),
    gives=(Port(name="audio", type=AUDIO, label="audio", tooltip="Mono speech at 24,000 Hz."),),
    params=(
        Param(
            name="postprocess_output",
            kind="bool",
            default=True,
            label="cut silence",
            tooltip="Cut pauses to half a second, and silence at both ends. This rounds samples to 16 bits.",
        ),
        Param(
            name="pad_duration",
            kind="float",
            default=0.1,
            low=0.0,
            high=10.0,
            step=0.05,
            unit="seconds",
            label="silence around",
            tooltip="Seconds of silence before and after the speech.",
            advanced=True,
        ),
        Param(
            name="fade_duration",
            kind="float",
            default=0.1,
            low=0.0,
            high=10.0,
            step=0.05,
            unit="seconds",
            label="fade",
            tooltip="Seconds in which the speech fades in and out.",
            advanced=True,
        ),
    ),
)


SPEC = EngineSpec(
    id="omnivoice",
    label="OmniVoice",
    description="Cloned and designed voices in 646 languages.",
    licence=f"GPL-3.0-or-later; the published weights {LICENCE}",
    layout=Layout(kind="folder", marker="config.json"),
    components=(
        Component(name="model", kind="oneshot", tooltip="Text, voice and masks to codes, step by step."),
        Component(name="codec_encoder", kind="oneshot", tooltip="A recording to codes."),
        Component(name="codec_decoder", kind="oneshot", tooltip="Codes to samples."),
    ),
    phases=(CLONE, DESIGN, GENERATE, DECODE),
    phased=True,
    capabilities=Capabilities(clone=True, description=True, languages=TAGS),
    variants=VARIANTS,
    requirements=(package("tokenizers", purpose="the text's tokens"),),
)
