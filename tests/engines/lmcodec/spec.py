"""A test engine of the kind that most engines are: a language model that writes codes, and a codec that plays them."""

from __future__ import annotations

from mizuoto_runtime.engines.spec import (
    AUDIO,
    MODEL,
    TEXT,
    Component,
    EngineSpec,
    Layout,
    Param,
    Phase,
    Port,
    Variant,
)

MODEL_PORT = Port(name="model", type=MODEL, tooltip="The model.")

PROMPT = Phase(
    id="prompt",
    label="Prompt",
    tooltip="Encodes the text's manner, once.",
    takes=(MODEL_PORT, Port(name="text", type=TEXT, tooltip="What to speak.")),
    gives=(Port(name="prompt", type="PROMPT", tooltip="What generation begins with."),),
)

TALK = Phase(
    id="talk",
    label="Talk",
    tooltip="Samples one frame of codes after another.",
    takes=(MODEL_PORT, Port(name="prompt", type="PROMPT", tooltip="What generation begins with.")),
    gives=(Port(name="codes", type="CODES", tooltip="Frames of codes."),),
    params=(
        Param(name="max_frames", kind="int", default=16, low=1, high=512, tooltip="Most frames."),
        Param(
            name="chunk_frames",
            kind="int",
            default=4,
            low=0,
            high=512,
            tooltip="Frames of a step that runs again if memory runs out; 0: one step that never does.",
        ),
        Param(name="temperature", kind="float", default=0.9, low=0.0, high=2.0, tooltip="0: no sampling."),
        Param(
            name="kv_cache",
            kind="choice",
            default="dynamic",
            choices=("dynamic", "static"),
            tooltip="How keys and values are kept.",
        ),
    ),
    seeded=True,
)

DECODE = Phase(
    id="decode",
    label="Decode",
    tooltip="Plays the codes.",
    takes=(MODEL_PORT, Port(name="codes", type="CODES", tooltip="Frames of codes.")),
    gives=(Port(name="audio", type=AUDIO, tooltip="Mono sound."),),
)

SPEC = EngineSpec(
    id="lmcodec",
    label="LM and codec",
    description="A test engine.",
    licence="GPL-3.0-or-later",
    layout=Layout(kind="builtin"),
    components=(
        Component(name="talker", kind="sequence", tooltip="Conditioning, talker and code predictor."),
        Component(name="codec", kind="oneshot", tooltip="Codes to samples."),
    ),
    phases=(PROMPT, TALK, DECODE),
    phased=True,
    variants=(
        Variant(id="tied", label="Tied head, float32", licence="GPL-3.0-or-later"),
        Variant(id="untied-bf16", label="Own head, bfloat16", licence="GPL-3.0-or-later"),
    ),
)
