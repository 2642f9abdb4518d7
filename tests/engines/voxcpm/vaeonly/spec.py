"""A test engine of nothing but the audio VAE: a sound is encoded, its latents are decoded."""

from __future__ import annotations

from mizuoto_runtime.engines.spec import AUDIO, MODEL, TEXT, Component, EngineSpec, Layout, Phase, Port, Variant

MODEL_PORT = Port(name="model", type=MODEL, tooltip="The model.")
LATENTS = Port(name="latents", type="LATENTS", tooltip="A sound's latents.")

ENCODE = Phase(
    id="encode",
    label="Encode",
    tooltip="Encodes a sound as long as the text says.",
    takes=(MODEL_PORT, Port(name="text", type=TEXT, tooltip="Samples.")),
    gives=(LATENTS,),
)
DECODE = Phase(
    id="decode",
    label="Decode",
    tooltip="Decodes the latents.",
    takes=(MODEL_PORT, LATENTS),
    gives=(Port(name="audio", type=AUDIO, tooltip="Mono sound."),),
)
SPEC = EngineSpec(
    id="vaeonly",
    label="VAE only",
    description="A test engine.",
    licence="GPL-3.0-or-later",
    layout=Layout(kind="builtin"),
    components=(
        Component(name="encoder", kind="oneshot", tooltip="Samples to latents."),
        Component(name="decoder", kind="oneshot", tooltip="Latents to samples."),
    ),
    phases=(ENCODE, DECODE),
    phased=True,
    variants=(
        Variant(id="first", label="First", licence="GPL-3.0-or-later"),
        Variant(id="second", label="Second", licence="GPL-3.0-or-later"),
    ),
)
