"""Golden checkpoints under the names of published models, and a reference, where the shipped workflows expect them."""

from __future__ import annotations

from pathlib import Path

from mizuoto_runtime.audio.wav import write_wav
from tests.golden.qwen3tts.checkpoint import reference_sound, write_checkpoint

MODELS = {"Qwen3-TTS-12Hz-0.6B-Base": "base-small", "Qwen3-TTS-12Hz-1.7B-VoiceDesign": "design-large"}
REFERENCE = "reference.wav"
RATE_HZ = 24_000


def place_models(base: Path) -> None:
    """Put them into a ComfyUI base directory."""
    for name, golden in MODELS.items():
        write_checkpoint(base / "models" / "mizuoto" / "qwen3tts" / name, golden)
    (base / "input").mkdir(parents=True, exist_ok=True)
    write_wav(base / "input" / REFERENCE, reference_sound(2 * RATE_HZ, 3)[None], RATE_HZ)
