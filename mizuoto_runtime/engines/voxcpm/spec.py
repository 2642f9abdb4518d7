"""VoxCPM 0.5B, 1.5 and 2: speech without codes; cloned voices, and with VoxCPM 2 described ones."""

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
LATENTS = "LATENTS"

MODEL_PORT = Port(name="model", type=MODEL, label="model", tooltip="A VoxCPM model.")

VOICE_PHASE = Phase(
    id="voice",
    label="Voice",
    tooltip="The voice of a recording: how it sounds, or a beginning that the speech goes on from, or both.",
    takes=(
        MODEL_PORT,
        Port(
            name="reference",
            type=AUDIO,
            label="reference",
            tooltip="One speaker without noise, 3 to 15 seconds. Without a transcript VoxCPM 2 takes its sound alone.",
            optional=True,
        ),
        Port(
            name="reference_text",
            type=TEXT,
            label="reference text",
            tooltip="What is said in the reference, word for word. With it the speech goes on from the reference.",
            optional=True,
        ),
        Port(
            name="prompt",
            type=AUDIO,
            label="prompt",
            tooltip="A recording that the speech goes on from, beside a reference of VoxCPM 2, or instead of one.",
            optional=True,
        ),
        Port(
            name="prompt_text",
            type=TEXT,
            label="prompt text",
            tooltip="What is said in the prompt, word for word.",
            optional=True,
        ),
    ),
    gives=(Port(name="voice", type=VOICE, label="voice", tooltip="For VoxCPM Generate or Speak."),),
    when=("reference", "prompt"),
)

GENERATE = Phase(
    id="generate",
    label="Generate",
    tooltip="Text to latents, patch by patch: 12.5 patches a second with VoxCPM 0.5B, 6.25 with 1.5 and 2.",
    takes=(
        MODEL_PORT,
        Port(name="text", type=TEXT, label="text", tooltip="What to say."),
        Port(
            name="voice",
            type=VOICE,
            label="voice",
            tooltip="Whose voice; without one the model makes one up.",
            optional=True,
        ),
    ),
    gives=(Port(name="latents", type=LATENTS, label="latents", tooltip="Latents, for VoxCPM Decode."),),
    params=(
        Param(
            name="control",
            kind="text",
            default="",
            label="description",
            tooltip="How the voice sounds and speaks, for VoxCPM 2: age, mood, pace. Not with a prompt.",
        ),
        Param(
            name="cfg_value",
            kind="float",
            default=2.0,
            low=0.1,
            high=10.0,
            step=0.1,
            label="guidance",
            tooltip="How closely text and voice are followed; 1 to 3 are best.",
        ),
        Param(
            name="inference_timesteps",
            kind="int",
            default=10,
            low=1,
            high=100,
            label="steps",
            tooltip="Steps from noise to a patch; fewer are faster. The first is free.",
        ),
        Param(
            name="normalize",
            kind="bool",
            default=False,
            label="normalise",
            tooltip="Spell out numbers, dates and units in Chinese and English; needs wetext, inflect and regex.",
            advanced=True,
        ),
        Param(
            name="min_len",
            kind="int",
            default=2,
            low=0,
            high=65_536,
            label="fewest patches",
            tooltip="The speech doesn't end before so many patches and two more.",
            advanced=True,
        ),
        Param(
            name="max_len",
            kind="int",
            default=4096,
            low=1,
            high=65_536,
            label="most patches",
            tooltip="The speech is cut off after so many patches.",
            advanced=True,
        ),
        Param(
            name="retry_badcase",
            kind="bool",
            default=True,
            label="retry",
            tooltip="Whether speech that is too long for its text is made again with other random numbers.",
            advanced=True,
        ),
        Param(
            name="retry_badcase_max_times",
            kind="int",
            default=3,
            low=1,
            high=100,
            label="most tries",
            tooltip="So many tries at most; the last one counts.",
            advanced=True,
        ),
        Param(
            name="retry_badcase_ratio_threshold",
            kind="float",
            default=6.0,
            low=0.1,
            high=1000.0,
            step=0.1,
            label="patches a token",
            tooltip="Speech of so many patches for each token of its text is too long; 10 more end it in any case.",
            advanced=True,
        ),
    ),
    seeded=True,
)

DECODE = Phase(
    id="decode",
    label="Decode",
    tooltip="Latents to audio.",
    takes=(
        MODEL_PORT,
        Port(name="latents", type=LATENTS, label="latents", tooltip="What VoxCPM Generate gives."),
    ),
    gives=(
        Port(
            name="audio", type=AUDIO, label="audio", tooltip="Mono speech at the model's rate: 16, 44.1 or 48 kHz."
        ),
    ),
)


SPEC = EngineSpec(
    id="voxcpm",
    label="VoxCPM",
    description="Cloned voices in Chinese and English; VoxCPM 2 also described voices, in 30 languages.",
    licence=LICENCE,
    layout=Layout(kind="folder", marker="config.json"),
    components=(
        Component(name="model", kind="sequence", tooltip="Language models, local encoder and local DiT."),
        Component(name="vae_encoder", kind="oneshot", tooltip="Samples to latents; for recordings only."),
        Component(name="vae_decoder", kind="oneshot", tooltip="Latents to samples."),
    ),
    phases=(VOICE_PHASE, GENERATE, DECODE),
    phased=True,
    capabilities=Capabilities(clone=True, description=True, languages=TAGS),
    variants=VARIANTS,
    requirements=(
        package("tokenizers", purpose="the text's tokens"),
        package("soxr", purpose="recordings at other sample rates"),
    ),
)
