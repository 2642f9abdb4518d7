"""What speech asks of a machine: memory that stays bounded however long the text is, and no float64 on the device."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.engines.piper.model import _whole_frames
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "piper"
CHARACTERS = 100_000
SYMBOLS = "^$_ .,aeiouæɛɪʊ"
SENTENCE = (
    "The children played in the park after school, and then they walked home along the river, where the old men sat "
    "and talked about the weather, the harvest and the price of bread, until it was dark and the lamps were lit. "
)
WORKING_BYTES = 150 << 20
SILENCE_SECONDS = 5.0
LIBRARY_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "OMP_NUM_THREADS": "1"}
"""oneDNN keeps code for the last 1,024 shapes that it has seen, up to about 300 MB whatever the text's length."""


def test_memory_stays_bounded_for_a_long_text(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("peak memory is read from /proc/self/status, which only Linux has")
    folder = tmp_path / "piper"
    folder.mkdir()
    (folder / "tiny.onnx").write_bytes(lzma.decompress((GOLDEN / "x_low.onnx.xz").read_bytes()))
    settings = json.loads((GOLDEN / "x_low.onnx.json").read_text(encoding="utf-8"))
    settings["phoneme_id_map"] = {symbol: [index] for index, symbol in enumerate(SYMBOLS)}
    (folder / "tiny.onnx.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, __file__, str(tmp_path)]
    environment = {**os.environ, **LIBRARY_CACHES, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    print(measured)
    assert measured["output_bytes"] > WORKING_BYTES, "too little sound to notice a second copy of it"
    assert measured["growth_bytes"] < measured["output_bytes"] + measured["encoding_bytes"] + WORKING_BYTES


class WithoutFloat64(torch.Tensor):
    """Like a tensor on MPS: there is no float64 until it is on the CPU."""

    def double(self) -> torch.Tensor:  # type: ignore[override]
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor)


def test_durations_need_no_float64_on_the_device() -> None:
    frames = _whole_frames(torch.tensor([0.5, 2.0, 2.1]).as_subclass(WithoutFloat64))
    assert frames.tolist() == [1, 2, 3]


def status_bytes(key: str) -> int:
    match = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert match is not None
    return int(match[1]) << 10


def speak(session: Session, text: str) -> tuple[int, int]:
    """Bytes of the sound and of the encoding of `text`."""
    files = session.find("piper", "tiny")
    (encoding,) = session.run_phase(files, "encode", {"text": text}, {"length_scale": 0.1})
    (sound,) = session.run_phase(files, "decode", {"encoding": encoding}, {"sentence_silence": SILENCE_SECONDS})
    assert isinstance(sound.value, Audio)
    sentences = encoding.value.sentences  # type: ignore[attr-defined]
    tensors = [tensor for each in sentences for tensor in (each.mean, each.log_scale, each.durations)]
    return sound.value.samples.nbytes, sum(tensor.nbytes for tensor in tensors)


def main() -> None:
    session = Session(resolve(environment={}), ModelLibrary([Path(sys.argv[1])]))
    speak(session, SENTENCE)
    before = status_bytes("VmRSS")
    output_bytes, encoding_bytes = speak(session, (SENTENCE * (CHARACTERS // len(SENTENCE) + 1))[:CHARACTERS])
    growth_bytes = status_bytes("VmHWM") - before
    figures = {"output_bytes": output_bytes, "encoding_bytes": encoding_bytes, "growth_bytes": growth_bytes}
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
