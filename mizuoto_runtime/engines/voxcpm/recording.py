"""A recording, of any rate and channels → what the VAE's encoder takes. As upstream reads each generation's files."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from ...audio.recording import first_audible, recording_batch, short_notes
from ...audio.resample import resample_hann, resample_soxr
from .config import VoxCpmConfig


@dataclass(frozen=True)
class Recording:
    """samples: float32 (length), mono, at the encoder's rate, on the CPU, in whole patches. notes: for the request."""

    samples: Tensor
    notes: tuple[str, ...]


def prepare_recording(
    samples: Tensor, rate_hz: int, config: VoxCpmConfig, *, before: bool, name: str = "reference"
) -> Recording:
    """samples: (length), (channels, length) or (batch, channels, length), full scale 1.

    Of a batch the first recording that isn't silent is taken, channels are averaged. before: whether the silence that
    fills up a patch stands before it, for speech that goes on from the recording, or after it. name: what the recording
    is called in messages. InputError for silence, and for what is no sound.
    """
    channels, notes = first_audible(recording_batch(samples, rate_hz, name), name)
    mono = channels.mean(dim=0) if len(channels) > 1 else channels[0]
    notes += short_notes(len(mono) / rate_hz, "3 to 15 s", name)
    target_hz = config.vae.input_rate_hz
    if config.second:
        resampled = resample_soxr(mono, rate_hz, target_hz)
    else:
        resampled = resample_hann(mono[None], rate_hz, target_hz, precise=False)[0]
    missing = -len(resampled) % (config.patch * config.vae.input_hop)
    return Recording(functional.pad(resampled, (missing, 0) if before else (0, missing)), notes)
