"""VoxCPM at work: a recording's voice, latents of a text, and their decoding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...library import ModelFiles
from ...loader import Loader
from ...memory.handle import ModelHandle
from ...memory.phase import PhaseContext
from ...types import Audio
from .config import VoxCpmConfig
from .normalise import is_bare
from .normalise import normalise as spelled_out
from .prompt import Prompt, Voice
from .recording import prepare_recording
from .speech import Latents, Retries, Sampling, write_latents
from .text import TextTokenizer, described, spaced
from .vae_decoder import SMALL_TILE_FRAMES, VaeDecoder
from .vae_encoder import VaeEncoder
from .vae_estimates import decoder_bytes, encoder_bytes
from .weights import load_modules

TILES = "decoding in small tiles"


@dataclass(frozen=True)
class VoxCpmModel:
    """An open model. dtype: what it computes in at the user's wish, "" for as its description says."""

    config: VoxCpmConfig
    tokenizer: TextTokenizer
    model: ModelHandle
    encoder: ModelHandle
    decoder: ModelHandle
    dtype: str = ""

    def note(self, ctx: PhaseContext) -> None:
        """Say in the output what was chosen for the whole model."""
        if self.dtype:
            ctx.applied["dtype"] = self.dtype


def load(files: ModelFiles, loader: Loader) -> VoxCpmModel:
    """Open the model in the folder `files.path`. ModelFileError says what is wrong with its files."""
    assert files.path is not None
    loaded = load_modules(files.path, _dtype(loader), blocks=loader.device == "cpu")
    model = loader.handle("model", loaded.model, many_rows=loaded.model.many_rows())
    model.mark(loaded.model.base_lm.embed_tokens, "gather")
    model.mark(loaded.model.feat_encoder, "hot")
    model.mark(loaded.model.feat_decoder, "hot")
    return VoxCpmModel(
        config=loaded.config,
        tokenizer=loaded.tokenizer,
        model=model,
        encoder=loader.handle("vae_encoder", loaded.encoder),
        decoder=loader.handle("vae_decoder", loaded.decoder),
        dtype=loader.dtype,
    )


def _dtype(loader: Loader) -> torch.dtype | None:
    """What is asked for. On Apple's GPUs float32, as upstream: half precision drifts there."""
    if loader.dtype:
        chosen: torch.dtype = getattr(torch, loader.dtype)
        return chosen
    return torch.float32 if loader.device.startswith("mps") else None


def voice(
    ctx: PhaseContext,
    model: VoxCpmModel,
    *,
    reference: Audio | None,
    reference_text: str | None,
    prompt: Audio | None,
    prompt_text: str | None,
) -> Voice:
    """The voice of a recording: its sound alone, a beginning to go on from, or both.

    A reference with its text and without a prompt is the prompt.
    """
    prompt_name = "prompt"
    if reference is not None and reference_text and prompt is None:
        reference, prompt, prompt_text, prompt_name = None, reference, reference_text, "reference"
    elif reference_text:
        ctx.warn("the reference's text isn't read: the speech goes on from the prompt")
    _check_recordings(model.config, reference, prompt, prompt_text)
    return Voice(
        reference=None if reference is None else _encoded(ctx, model, reference, "reference", before=False),
        prompt=None if prompt is None else _encoded(ctx, model, prompt, prompt_name, before=True),
        prompt_text=prompt_text or "",
        rate_hz=model.config.vae.input_rate_hz,
    )


def _check_recordings(
    config: VoxCpmConfig, reference: Audio | None, prompt: Audio | None, prompt_text: str | None
) -> None:
    if reference is None and prompt is None:
        raise InputError("a voice needs a recording; connect one to reference, or to prompt")
    if (prompt is None) is not (prompt_text is None):
        missing = "prompt_text: what is said in it" if prompt_text is None else "prompt: the recording itself"
        raise InputError(f"a prompt is a recording and its text; connect {missing}")
    if reference is not None and not config.second:
        raise InputError("this model follows a recording only with its text, word for word; give the reference's text")


def _encoded(ctx: PhaseContext, model: VoxCpmModel, audio: Audio, name: str, *, before: bool) -> Tensor:
    """float32 (patches, patch, latent) on the CPU."""
    config, module = model.config, model.encoder.module
    assert isinstance(module, VaeEncoder)
    recording = prepare_recording(audio.samples, audio.rate_hz, config, before=before, name=name)
    for note in recording.notes:
        ctx.warn(note)
    device = torch.device(ctx.device)
    latents = ctx.run(
        "vae encoder",
        [model.encoder],
        lambda: module.encode(recording.samples.to(device), ctx.check).cpu(),
        encoder_bytes(config.vae, len(recording.samples), device),
    )
    return latents.view(-1, config.patch, config.latent)


def generate(
    ctx: PhaseContext,
    model: VoxCpmModel,
    *,
    text: str,
    voice: Voice | None,
    control: str,
    cfg_value: float,
    inference_timesteps: int,
    normalize: bool,
    min_len: int,
    max_len: int,
    retry_badcase: bool,
    retry_badcase_max_times: int,
    retry_badcase_ratio_threshold: float,
) -> Latents:
    """The text's latents, in the voice if there is one."""
    model.note(ctx)
    if voice is not None:
        voice.check(model.config)
    _check_control(model.config, control, voice)
    wanted = spaced(described(text, control))
    if normalize:
        wanted = "" if is_bare(text) else spelled_out(wanted)
        if not wanted.strip():
            raise InputError("nothing is left of the text once it is normalised; write words, or turn normalize off")
        ctx.applied["normalized_text"] = wanted
    prompt = Prompt.of(model.tokenizer, wanted, voice)
    how = Sampling(cfg_value=cfg_value, inference_timesteps=inference_timesteps, min_len=min_len)
    retries = Retries(
        tries=retry_badcase_max_times if retry_badcase else 1,
        patches_a_token=retry_badcase_ratio_threshold,
        most_patches=max_len,
    )
    return write_latents(ctx, model.model, model.config, prompt, how, retries)


def _check_control(config: VoxCpmConfig, control: str, voice: Voice | None) -> None:
    if not control.strip():
        return
    if not config.second:
        raise InputError("only VoxCPM 2 takes a description; leave control empty, or choose that model")
    if voice is not None and voice.prompt is not None:
        raise InputError("the speech goes on from a prompt, which takes no description; leave control empty")


def decode(ctx: PhaseContext, model: VoxCpmModel, *, latents: Latents) -> Audio:
    """The latents as audio, (1, length) at the VAE's rate; what comes before them is decoded, and cut off."""
    config, module = model.config, model.decoder.module
    assert isinstance(module, VaeDecoder)
    latents.check(config)
    frames = latents.frames
    device = torch.device(ctx.device)
    ctx.progress(0, 1)
    samples = ctx.run(
        "vae decoder",
        [model.decoder],
        lambda: module.decode(frames.to(device), ctx.check).cpu(),
        decoder_bytes(config.vae, len(frames), device),
        fallback=(
            TILES,
            lambda: module.decode(frames.to(device), ctx.check, tile_frames=SMALL_TILE_FRAMES).cpu(),
        ),
    )
    ctx.progress(1, 1)
    cut = latents.cut_patches * config.patch * config.cut_hop
    return Audio(samples[cut:].reshape(1, -1), config.vae.output_rate_hz)
