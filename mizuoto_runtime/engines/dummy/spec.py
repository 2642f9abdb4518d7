"""Tones instead of speech: for tests and first contact. Needs no model files."""

from __future__ import annotations

from ..spec import AUDIO, MODEL, TEXT, Component, EngineSpec, Layout, Param, Phase, Port, Variant

TONES = Phase(
    id="tones",
    label="Tones",
    tooltip="One tone a character, higher for later letters, silence for spaces.",
    takes=(
        Port(name="model", type=MODEL, label="model", tooltip="The Dummy model."),
        Port(name="text", type=TEXT, label="text", tooltip="What to play."),
    ),
    gives=(Port(name="audio", type=AUDIO, label="audio", tooltip="Mono tones at 24,000 Hz."),),
    params=(
        Param(
            name="tone_seconds",
            kind="float",
            default=0.08,
            low=0.01,
            high=1.0,
            step=0.01,
            unit="seconds",
            label="tone length",
            tooltip="How long each character sounds, in seconds.",
        ),
        Param(
            name="noise",
            kind="float",
            default=0.0,
            low=0.0,
            high=1.0,
            step=0.01,
            label="noise",
            tooltip="Loudness of the white noise that the seed adds.",
            advanced=True,
        ),
    ),
    seeded=True,
)

SPEC = EngineSpec(
    id="dummy",
    label="Dummy",
    description="Tones instead of speech, for tests and first contact.",
    licence="GPL-3.0-or-later",
    layout=Layout(kind="builtin"),
    components=(Component(name="oscillator", kind="oneshot", tooltip="Loudness of each harmonic."),),
    phases=(TONES,),
    phased=False,
    variants=(Variant(id="tones", label="Tones", licence="GPL-3.0-or-later"),),
)
