"""Writes `text.json`: what upstream makes of texts, recordings, lengths and edits, without a model.

Run in an environment with f5-tts 1.1.22, vocos 0.1.0, pydub 0.25.1, rjieba 0.2.2, pypinyin 0.55.0, soundfile and torch
2.13 (CPU), from the repository's root:

    python -m tests.golden.f5tts.record_text

Upstream's own functions run; only the network and the vocoder are replaced, by ones that give zeros and counted
numbers. `text_cases.py` has the cases, `sounds.py` makes the recordings from seeds.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import types
import wave
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import f5_tts.infer.utils_infer as upstream
import f5_tts.model
import f5_tts.model.utils
import numpy as np
import soundfile
import torch
import torchaudio
from f5_tts.model import CFM
from torch import Tensor, nn

from tests.golden.f5tts import text_cases
from tests.golden.f5tts.sounds import noise, recording, widened

FOLDER = Path(__file__).parent
PACKAGES = ("f5-tts", "pydub", "rjieba", "pypinyin", "soundfile", "torchaudio", "torch", "numpy")
TOLERANCE = 1e-6
SHOWN = 24


def main() -> None:
    torch.set_num_threads(1)
    torchaudio.load = load
    upstream.ThreadPoolExecutor = functools.partial(ThreadPoolExecutor, max_workers=1)
    golden = {
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "tolerance": TOLERANCE,
        "tokens": f5_tts.model.utils.convert_char_to_pinyin(text_cases.TEXTS),
        "chunks": [[upstream.chunk_text(text, size) for size in text_cases.MAX_CHARS] for text in text_cases.CHUNKED],
        "pcm": pcm(),
    }
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        paths = [write(case, seed, f"{seed}.wav") for seed, case in enumerate(text_cases.RECORDINGS)]
        golden["endings"] = [
            upstream.preprocess_ref_audio_text(paths[0], text, show_info=ignore)[1] for text in text_cases.ENDINGS
        ]
        golden["recordings"] = [prepared(path) for path in paths]
        golden["speeches"] = [speech(case, paths[case["recording"]]) for case in text_cases.SPEECHES]
        golden["edits"] = [edit(case) for case in text_cases.EDITS]
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in golden.items())
    (FOLDER / "text.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{(FOLDER / 'text.json').stat().st_size:,} bytes")


def ignore(*_: object) -> None: ...


def load(path: str) -> tuple[Tensor, int]:
    """As torchaudio's, without the package that it needs for it."""
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(np.ascontiguousarray(samples.T)), rate_hz


def write(case: dict[str, Any], seed: int, path: str) -> str:
    samples = recording(case["stretches"], case["rate_hz"], case.get("channels", 1), seed)
    data = samples.astype("<i2").tobytes()
    if "bits" in case:
        wide = widened(samples, seed).astype("<i4")
        data = wide.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    with wave.open(path, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(case.get("bits", 16) // 8)
        file.setframerate(case["rate_hz"])
        file.writeframes(data)
    return path


def digest(samples: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(samples).tobytes()).hexdigest()[:32]


def shown(samples: Tensor) -> list[float]:
    """Some samples, spread evenly."""
    return [float(samples[place]) for place in np.linspace(0, len(samples) - 1, SHOWN).astype(int)]


def pcm() -> dict[str, Any]:
    """How soundfile makes 16 bits of numbers that aren't whole ones, some beyond full scale."""
    numbers = (noise(np.arange(20_000), 5) * 70_000 + noise(np.arange(20_000), 6)).astype(np.float32) / 2.0**31
    soundfile.write("pcm.wav", numbers, 24_000)
    whole, _ = soundfile.read("pcm.wav", dtype="int16")
    Path("pcm.wav").unlink()
    return {"sha256": digest(whole), "first": whole[:SHOWN].tolist()}


def prepared(path: str) -> dict[str, Any]:
    """The recording as upstream cuts it (its whole file), and as it reaches the model."""
    cut, _ = upstream.preprocess_ref_audio_text(path, "Some text.", show_info=ignore)
    dtype = "int16" if soundfile.info(cut).subtype == "PCM_16" else "int32"
    samples, rate_hz = soundfile.read(cut, dtype=dtype, always_2d=True)
    spoken, model = infer(cut, "Some text. ", "Some words to say.")
    condition = model.calls[0]["cond"][0]
    return {
        "rate_hz": rate_hz,
        "frames": len(samples),
        "sha256": digest(samples),
        "length": len(condition),
        "samples": shown(condition),
        "level": float(spoken[0]) / text_cases.LEVEL,
    }


class Silent(nn.Module):
    """A network that changes nothing; `dim` is what CFM reads."""

    dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, cfg_infer: bool = False, **_: object) -> Tensor:
        zeros = torch.zeros_like(x)
        return torch.cat((zeros, zeros)) if cfg_infer else zeros

    def clear_cache(self) -> None: ...


class Asked:
    """CFM with a silent network, and what it is asked for."""

    def __init__(self, **_: object) -> None:
        mel = {"n_fft": 1024, "hop_length": 256, "win_length": 1024, "n_mel_channels": 100}
        mel |= {"target_sample_rate": 24_000, "mel_spec_type": "vocos"}
        self.inner = CFM(Silent(), mel_spec_kwargs=mel, vocab_char_map={" ": 0})
        self.mel_spec = self.inner.mel_spec
        self.calls: list[dict[str, Any]] = []

    def to(self, _: object) -> Asked:
        return self

    def sample(self, **asked: Any) -> tuple[Tensor, None]:
        generated, _ = self.inner.sample(**asked | {"steps": 1})
        self.calls.append(asked | {"sampled": generated.shape[1]})
        return generated, None


class Counting:
    """A vocoder whose wave tells how long its mel was; it begins with LEVEL."""

    def decode(self, mel: Tensor) -> Tensor:
        counted = torch.from_numpy(noise(np.arange((mel.shape[2] - 1) * 256), mel.shape[2])).float() / 65_536
        counted[:1] = text_cases.LEVEL
        return counted[None]


def infer(path: str, reference_text: str, text: str, **options: Any) -> tuple[np.ndarray[Any, Any], Asked]:
    model = Asked()
    samples, _, _ = upstream.infer_process(
        path, reference_text, text, model, Counting(), show_info=ignore, progress=None, device="cpu", **options
    )
    return samples, model


def speech(case: dict[str, Any], path: str) -> dict[str, Any]:
    """Each chunk's tokens and lengths, and the joined wave."""
    cut, reference_text = upstream.preprocess_ref_audio_text(path, case["reference_text"], show_info=ignore)
    options = {name: case[name] for name in ("speed", "fix_duration", "cross_fade_duration") if name in case}
    samples, model = infer(cut, reference_text, case["text"], **options)
    rounded = samples.astype(np.float32)
    return {
        "texts": ["".join(call["text"][0]) for call in model.calls],
        "frames": [call["duration"] for call in model.calls],
        "sampled": [call["sampled"] for call in model.calls],
        "length": len(rounded),
        "samples": shown(torch.from_numpy(rounded)),
        "mean_square": float(np.square(samples.astype(np.float64)).mean()),
    }


def edit(case: dict[str, Any]) -> dict[str, Any]:
    """What the editing script asks of the model: its settings are replaced, and what it loads."""
    samples = recording([(text_cases.EDITED_SECONDS, text_cases.EDITED_AMPLITUDE)], 24_000, 1, 99)
    soundfile.write("edited.wav", samples, 24_000)
    origin = importlib.util.find_spec("f5_tts.infer.speech_edit").origin
    script = ast.parse(Path(origin).read_text(encoding="utf-8"))
    settings = {"audio_to_edit": "edited.wav", "parts_to_edit": case["spans"], "fix_duration": case["seconds"]}
    for statement in script.body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") in settings:
            statement.value = ast.parse(repr(settings[statement.targets[0].id]), mode="eval").body
    model = Asked()
    loaded = {"load_checkpoint": lambda *_, **__: model, "load_vocoder": lambda **_: Counting()}
    replaced = {
        "cached_path": types.SimpleNamespace(cached_path=str),
        "hydra.utils": types.SimpleNamespace(get_class=lambda _: ignore_all),
        "f5_tts.infer.utils_infer": types.SimpleNamespace(**loaded, save_spectrogram=ignore),
        "f5_tts.model": types.SimpleNamespace(CFM=Asked),
        "f5_tts.model.utils": types.SimpleNamespace(
            convert_char_to_pinyin=f5_tts.model.utils.convert_char_to_pinyin, get_tokenizer=lambda *_: ({" ": 0}, 1)
        ),
    }
    kept = {name: sys.modules.get(name) for name in replaced}
    torchaudio.save = ignore
    try:
        sys.modules.update(replaced)
        exec(compile(script, origin, "exec"), {"__name__": "script"})
    finally:
        sys.modules.update({name: module for name, module in kept.items() if module is not None})
    (call,) = model.calls
    mask, condition = call["edit_mask"][0], call["cond"][0]
    return {
        "frames": call["duration"],
        "sampled": call["sampled"],
        "kept": "".join("01"[int(value)] for value in mask),
        "sources": sources(condition, Asked().mel_spec(load("edited.wav")[0])[0].T),
    }


def ignore_all(**_: object) -> None: ...


def sources(condition: Tensor, mel: Tensor) -> list[int]:
    """For each frame of the condition which frame of the recording's mel it is; -1 for zeros."""
    equal = (condition[:, None] == mel[None]).all(dim=2)
    return [int(row.nonzero()[0, 0]) if row.any() else -1 for row in equal]


if __name__ == "__main__":
    main()
